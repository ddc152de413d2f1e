// The untuned build of the runner tests: a 24x137 by 137x40 matmul into a buffer that the caller passes.
func.func @task(%a: tensor<24x137xf32>, %b: tensor<137x40xf32>,
                %out: !hal.buffer {iree.abi.output = 0 : index}) -> tensor<24x40xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<24x40xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<24x40xf32>) -> tensor<24x40xf32>
  %product = linalg.matmul ins(%a, %b : tensor<24x137xf32>, tensor<137x40xf32>)
                           outs(%fill : tensor<24x40xf32>) -> tensor<24x40xf32>
  return %product : tensor<24x40xf32>
}
