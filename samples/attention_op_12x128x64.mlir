// Scaled dot-product attention of 12 heads over 128 positions, as the one op that importers hand over.
#q = affine_map<(b, m, n, k1, k2) -> (b, m, k1)>
#k = affine_map<(b, m, n, k1, k2) -> (b, k2, k1)>
#v = affine_map<(b, m, n, k1, k2) -> (b, k2, n)>
#s = affine_map<(b, m, n, k1, k2) -> ()>
#o = affine_map<(b, m, n, k1, k2) -> (b, m, n)>
func.func @attention(%q: tensor<12x128x64xf32>, %k: tensor<12x128x64xf32>, %v: tensor<12x128x64xf32>) -> tensor<12x128x64xf32> {
  %scale = arith.constant 0.125 : f32
  %empty = tensor.empty() : tensor<12x128x64xf32>
  %r = iree_linalg_ext.attention <{indexing_maps = [#q, #k, #v, #s, #o]}>
      ins(%q, %k, %v, %scale : tensor<12x128x64xf32>, tensor<12x128x64xf32>, tensor<12x128x64xf32>, f32)
      outs(%empty : tensor<12x128x64xf32>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<12x128x64xf32>
  return %r : tensor<12x128x64xf32>
}
