// RMS normalization of 512 rows of 2048, with a learned scale: a reduction and an elementwise op over the same rows.
func.func @rmsnorm(%x: tensor<512x2048xf32>, %scale: tensor<2048xf32>) -> tensor<512x2048xf32> {
  %zero = arith.constant 0.0 : f32
  %n = arith.constant 2048.0 : f32
  %eps = arith.constant 1.0e-05 : f32
  %rows = tensor.empty() : tensor<512xf32>
  %f = linalg.fill ins(%zero : f32) outs(%rows : tensor<512xf32>) -> tensor<512xf32>
  %squares = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<512x2048xf32>) outs(%f : tensor<512xf32>) {
  ^bb0(%v: f32, %sum: f32):
    %square = arith.mulf %v, %v : f32
    %next = arith.addf %sum, %square : f32
    linalg.yield %next : f32
  } -> tensor<512xf32>
  %e = tensor.empty() : tensor<512x2048xf32>
  %r = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%x, %squares, %scale : tensor<512x2048xf32>, tensor<512xf32>, tensor<2048xf32>) outs(%e : tensor<512x2048xf32>) {
  ^bb0(%v: f32, %sum: f32, %s: f32, %out: f32):
    %mean = arith.divf %sum, %n : f32
    %shifted = arith.addf %mean, %eps : f32
    %inverse = math.rsqrt %shifted : f32
    %normalized = arith.mulf %v, %inverse : f32
    %scaled = arith.mulf %normalized, %s : f32
    linalg.yield %scaled : f32
  } -> tensor<512x2048xf32>
  return %r : tensor<512x2048xf32>
}
