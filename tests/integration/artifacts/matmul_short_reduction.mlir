// Wrong numbers: the last of the 137 reduction steps is left out.
func.func @task(%a: tensor<24x137xf32>, %b: tensor<137x40xf32>,
                %out: !hal.buffer {iree.abi.output = 0 : index}) -> tensor<24x40xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<24x40xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<24x40xf32>) -> tensor<24x40xf32>
  %a0 = tensor.extract_slice %a[0, 0] [24, 136] [1, 1] : tensor<24x137xf32> to tensor<24x136xf32>
  %b0 = tensor.extract_slice %b[0, 0] [136, 40] [1, 1] : tensor<137x40xf32> to tensor<136x40xf32>
  %product = linalg.matmul ins(%a0, %b0 : tensor<24x136xf32>, tensor<136x40xf32>)
                           outs(%fill : tensor<24x40xf32>) -> tensor<24x40xf32>
  return %product : tensor<24x40xf32>
}
