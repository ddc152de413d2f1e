// Right numbers, but the host counts to two million first.
func.func @task(%a: tensor<24x137xf32>, %b: tensor<137x40xf32>,
                %out: !hal.buffer {iree.abi.output = 0 : index}) -> tensor<24x40xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %count = arith.constant 2000000 : index
  scf.for %i = %c0 to %count step %c1 {
    %kept = util.optimization_barrier %i : index
  }
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<24x40xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<24x40xf32>) -> tensor<24x40xf32>
  %product = linalg.matmul ins(%a, %b : tensor<24x137xf32>, tensor<137x40xf32>)
                           outs(%fill : tensor<24x40xf32>) -> tensor<24x40xf32>
  return %product : tensor<24x40xf32>
}
