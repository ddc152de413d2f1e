// Layer normalization of 512 rows of 768, with scale and bias: two reductions and an elementwise op over the same rows.
func.func @layernorm(%x: tensor<512x768xf32>, %scale: tensor<768xf32>, %bias: tensor<768xf32>) -> tensor<512x768xf32> {
  %zero = arith.constant 0.0 : f32
  %n = arith.constant 768.0 : f32
  %eps = arith.constant 1.0e-05 : f32
  %rows = tensor.empty() : tensor<512xf32>
  %f = linalg.fill ins(%zero : f32) outs(%rows : tensor<512xf32>) -> tensor<512xf32>
  %sums = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<512x768xf32>) outs(%f : tensor<512xf32>) {
  ^bb0(%v: f32, %sum: f32):
    %next = arith.addf %sum, %v : f32
    linalg.yield %next : f32
  } -> tensor<512xf32>
  %squares = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}
      ins(%x, %sums : tensor<512x768xf32>, tensor<512xf32>) outs(%f : tensor<512xf32>) {
  ^bb0(%v: f32, %total: f32, %sum: f32):
    %mean = arith.divf %total, %n : f32
    %centered = arith.subf %v, %mean : f32
    %square = arith.mulf %centered, %centered : f32
    %next = arith.addf %sum, %square : f32
    linalg.yield %next : f32
  } -> tensor<512xf32>
  %e = tensor.empty() : tensor<512x768xf32>
  %r = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%x, %sums, %squares, %scale, %bias : tensor<512x768xf32>, tensor<512xf32>, tensor<512xf32>, tensor<768xf32>, tensor<768xf32>) outs(%e : tensor<512x768xf32>) {
  ^bb0(%v: f32, %total: f32, %square: f32, %s: f32, %b: f32, %out: f32):
    %mean = arith.divf %total, %n : f32
    %centered = arith.subf %v, %mean : f32
    %variance = arith.divf %square, %n : f32
    %shifted = arith.addf %variance, %eps : f32
    %inverse = math.rsqrt %shifted : f32
    %normalized = arith.mulf %centered, %inverse : f32
    %scaled = arith.mulf %normalized, %s : f32
    %moved = arith.addf %scaled, %b : f32
    linalg.yield %moved : f32
  } -> tensor<512x768xf32>
  return %r : tensor<512x768xf32>
}
