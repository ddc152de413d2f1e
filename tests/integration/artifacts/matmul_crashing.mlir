// Reads far outside of its first input, so the process dies of SIGSEGV.
func.func @task(%a: tensor<24x137xf32>, %b: tensor<137x40xf32>,
                %out: !hal.buffer {iree.abi.output = 0 : index}) -> tensor<24x40xf32> {
  %empty = tensor.empty() : tensor<24x40xf32>
  %read = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]
  } outs(%empty : tensor<24x40xf32>) {
  ^bb0(%old: f32):
    %far = arith.constant 100000000000 : index
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %beyond = arith.addi %i, %far : index
    %value = tensor.extract %a[%beyond, %j] : tensor<24x137xf32>
    linalg.yield %value : f32
  } -> tensor<24x40xf32>
  return %read : tensor<24x40xf32>
}
