// The same matmul, summed in another order: first the last 73 steps of k, then the first 64.
func.func @task(%a: tensor<24x137xf32>, %b: tensor<137x40xf32>,
                %out: !hal.buffer {iree.abi.output = 0 : index}) -> tensor<24x40xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<24x40xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<24x40xf32>) -> tensor<24x40xf32>
  %a0 = tensor.extract_slice %a[0, 0] [24, 64] [1, 1] : tensor<24x137xf32> to tensor<24x64xf32>
  %a1 = tensor.extract_slice %a[0, 64] [24, 73] [1, 1] : tensor<24x137xf32> to tensor<24x73xf32>
  %b0 = tensor.extract_slice %b[0, 0] [64, 40] [1, 1] : tensor<137x40xf32> to tensor<64x40xf32>
  %b1 = tensor.extract_slice %b[64, 0] [73, 40] [1, 1] : tensor<137x40xf32> to tensor<73x40xf32>
  %tail = linalg.matmul ins(%a1, %b1 : tensor<24x73xf32>, tensor<73x40xf32>)
                        outs(%fill : tensor<24x40xf32>) -> tensor<24x40xf32>
  %all = linalg.matmul ins(%a0, %b0 : tensor<24x64xf32>, tensor<64x40xf32>)
                       outs(%tail : tensor<24x40xf32>) -> tensor<24x40xf32>
  return %all : tensor<24x40xf32>
}
