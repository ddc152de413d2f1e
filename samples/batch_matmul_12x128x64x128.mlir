// Twelve small matmuls, as in the attention heads of a BERT-sized model: 128x128 times 128x64 each.
func.func @batch_matmul(%a: tensor<12x128x128xf32>, %b: tensor<12x128x64xf32>) -> tensor<12x128x64xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<12x128x64xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<12x128x64xf32>) -> tensor<12x128x64xf32>
  %r = linalg.batch_matmul ins(%a, %b : tensor<12x128x128xf32>, tensor<12x128x64xf32>) outs(%f : tensor<12x128x64xf32>) -> tensor<12x128x64xf32>
  return %r : tensor<12x128x64xf32>
}
