// First layer of a transformer's feed-forward block: matmul, bias and GELU (with erf) in one dispatch.
func.func @feed_forward(%x: tensor<128x768xf32>, %w: tensor<768x3072xf32>, %bias: tensor<3072xf32>) -> tensor<128x3072xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %half = arith.constant 0.5 : f32
  %rsqrt2 = arith.constant 0.707106769 : f32
  %e = tensor.empty() : tensor<128x3072xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<128x3072xf32>) -> tensor<128x3072xf32>
  %m = linalg.matmul ins(%x, %w : tensor<128x768xf32>, tensor<768x3072xf32>) outs(%f : tensor<128x3072xf32>) -> tensor<128x3072xf32>
  %r = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%m, %bias : tensor<128x3072xf32>, tensor<3072xf32>) outs(%e : tensor<128x3072xf32>) {
  ^bb0(%v: f32, %b: f32, %out: f32):
    %s = arith.addf %v, %b : f32
    %scaled = arith.mulf %s, %rsqrt2 : f32
    %erf = math.erf %scaled : f32
    %cdf = arith.addf %erf, %one : f32
    %halved = arith.mulf %s, %half : f32
    %gelu = arith.mulf %halved, %cdf : f32
    linalg.yield %gelu : f32
  } -> tensor<128x3072xf32>
  return %r : tensor<128x3072xf32>
}
