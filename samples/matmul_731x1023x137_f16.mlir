// An f16 matmul none of whose sides is a multiple of a matrix instruction's.
func.func @matmul(%a: tensor<731x137xf16>, %b: tensor<137x1023xf16>) -> tensor<731x1023xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<731x1023xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<731x1023xf32>) -> tensor<731x1023xf32>
  %c = linalg.matmul ins(%a, %b : tensor<731x137xf16>, tensor<137x1023xf16>)
                     outs(%init : tensor<731x1023xf32>) -> tensor<731x1023xf32>
  return %c : tensor<731x1023xf32>
}
