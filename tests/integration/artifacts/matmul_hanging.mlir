// Never returns: the host counts for centuries.
func.func @task(%a: tensor<24x137xf32>, %b: tensor<137x40xf32>,
                %out: !hal.buffer {iree.abi.output = 0 : index}) -> tensor<24x40xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %count = arith.constant 1000000000000000000 : index
  scf.for %i = %c0 to %count step %c1 {
    %kept = util.optimization_barrier %i : index
  }
  %empty = tensor.empty() : tensor<24x40xf32>
  %zero = arith.constant 0.0 : f32
  %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<24x40xf32>) -> tensor<24x40xf32>
  return %fill : tensor<24x40xf32>
}
