// Scaled dot-product attention of 12 heads over 128 positions, written out: batch matmul, scale, softmax, batch matmul.
func.func @attention(%q: tensor<12x128x64xf32>, %k: tensor<12x128x64xf32>, %v: tensor<12x128x64xf32>) -> tensor<12x128x64xf32> {
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant 0.125 : f32
  %e = tensor.empty() : tensor<12x128x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<12x128x128xf32>) -> tensor<12x128x128xf32>
  %scores = linalg.batch_matmul
      indexing_maps = [affine_map<(b, i, j, c) -> (b, i, c)>, affine_map<(b, i, j, c) -> (b, j, c)>, affine_map<(b, i, j, c) -> (b, i, j)>]
      ins(%q, %k : tensor<12x128x64xf32>, tensor<12x128x64xf32>) outs(%f : tensor<12x128x128xf32>) -> tensor<12x128x128xf32>
  %scaled = linalg.generic {
      indexing_maps = [affine_map<(b, i, j) -> (b, i, j)>, affine_map<(b, i, j) -> (b, i, j)>],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%scores : tensor<12x128x128xf32>) outs(%e : tensor<12x128x128xf32>) {
  ^bb0(%s: f32, %out: f32):
    %product = arith.mulf %s, %scale : f32
    linalg.yield %product : f32
  } -> tensor<12x128x128xf32>
  %weights = linalg.softmax dimension(2) ins(%scaled : tensor<12x128x128xf32>) outs(%e : tensor<12x128x128xf32>) -> tensor<12x128x128xf32>
  %e2 = tensor.empty() : tensor<12x128x64xf32>
  %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<12x128x64xf32>) -> tensor<12x128x64xf32>
  %r = linalg.batch_matmul ins(%weights, %v : tensor<12x128x128xf32>, tensor<12x128x64xf32>) outs(%f2 : tensor<12x128x64xf32>) -> tensor<12x128x64xf32>
  return %r : tensor<12x128x64xf32>
}
