#row = affine_map<(m, n, k) -> (m, k)>
#column = affine_map<(m, n, k) -> (k, n)>
#out = affine_map<(m, n, k) -> (m, n)>
module attributes {transform.with_named_sequence, mlsearch.flags = ["--iree-global-opt-data-tiling", "--iree-global-opt-enable-early-materialization", "--iree-llvmcpu-enable-inner-tiled"]} {
  util.func private @unsigned_left(%left: tensor<?x?xi8>, %right: tensor<?x?xi8>, %init: tensor<?x?xi32>) -> tensor<?x?xi32> {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %zero = arith.constant 0 : i32
    %top = arith.constant -128 : i8
    %shift = arith.constant 7 : i32
    %m = tensor.dim %left, %c0 : tensor<?x?xi8>
    %k = tensor.dim %left, %c1 : tensor<?x?xi8>
    %n = tensor.dim %right, %c1 : tensor<?x?xi8>
    %left_space = tensor.empty(%m, %k) : tensor<?x?xi8>
    %unsigned = linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m, k)>], iterator_types = ["parallel", "parallel"]}
      ins(%left : tensor<?x?xi8>) outs(%left_space : tensor<?x?xi8>) {
    ^bb0(%x: i8, %unused: i8):
      %flipped = arith.xori %x, %top : i8
      linalg.yield %flipped : i8
    } -> tensor<?x?xi8>
    %product = linalg.generic {indexing_maps = [#row, #column, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%unsigned, %right : tensor<?x?xi8>, tensor<?x?xi8>) outs(%init : tensor<?x?xi32>) {
    ^bb0(%x: i8, %y: i8, %sum: i32):
      %wide_x = arith.extui %x : i8 to i32
      %wide_y = arith.extsi %y : i8 to i32
      %times = arith.muli %wide_x, %wide_y : i32
      %added = arith.addi %sum, %times : i32
      linalg.yield %added : i32
    } -> tensor<?x?xi32>
    %sums_space = tensor.empty(%n) : tensor<?xi32>
    %sums_zero = linalg.fill ins(%zero : i32) outs(%sums_space : tensor<?xi32>) -> tensor<?xi32>
    %sums = linalg.generic {indexing_maps = [affine_map<(n, k) -> (k, n)>, affine_map<(n, k) -> (n)>], iterator_types = ["parallel", "reduction"]}
      ins(%right : tensor<?x?xi8>) outs(%sums_zero : tensor<?xi32>) {
    ^bb0(%y: i8, %sum: i32):
      %wide = arith.extsi %y : i8 to i32
      %added = arith.addi %sum, %wide : i32
      linalg.yield %added : i32
    } -> tensor<?xi32>
    %result_space = tensor.empty(%m, %n) : tensor<?x?xi32>
    %result = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%product, %sums : tensor<?x?xi32>, tensor<?xi32>) outs(%result_space : tensor<?x?xi32>) {
    ^bb0(%x: i32, %sum: i32, %unused: i32):
      %excess = arith.shli %sum, %shift : i32
      %exact = arith.subi %x, %excess : i32
      linalg.yield %exact : i32
    } -> tensor<?x?xi32>
    util.return %result : tensor<?x?xi32>
  }

  transform.named_sequence @match_i8(%op: !transform.any_op {transform.readonly}) -> (!transform.any_value, !transform.any_value) {
    %ins, %outs = transform.iree.match.cast_compatible_dag_from_root %op {
    ^bb0(%left: tensor<?x?xi8>, %right: tensor<?x?xi8>, %init: tensor<?x?xi32>):
      %matmul = linalg.matmul ins(%left, %right : tensor<?x?xi8>, tensor<?x?xi8>) outs(%init : tensor<?x?xi32>) -> tensor<?x?xi32>
    } : (!transform.any_op) -> (!transform.any_value, !transform.any_value)
    transform.yield %ins, %outs : !transform.any_value, !transform.any_value
  }

  transform.named_sequence @rewrite(%ins: !transform.any_value {transform.readonly}, %outs: !transform.any_value {transform.readonly}) {
    %op = transform.get_defining_op %outs : (!transform.any_value) -> !transform.any_op
    %module = transform.util.get_nearest_symbol_table %op : (!transform.any_op) -> !transform.any_op
    %function = transform.util.import_symbol @unsigned_left into %module if undefined : (!transform.any_op) -> !transform.any_op
    transform.util.cast_and_call inline_call %function(%ins) -> %outs after %op {
      transform.type_conversion.tensor.cast_shape_dynamic_dims
    } : (!transform.any_op, !transform.any_value, !transform.any_value, !transform.any_op) -> ()
    transform.yield
  }

  transform.named_sequence @__transform_main(%payload: !transform.any_op) {
    %functions = transform.structured.match ops{["util.func"]} in %payload : (!transform.any_op) -> !transform.any_op
    transform.foreach %functions : !transform.any_op {
    ^bb0(%function: !transform.any_op):
      transform.foreach_match in %function @match_i8 -> @rewrite : (!transform.any_op) -> !transform.any_op
    }
    transform.apply_dce to %payload : !transform.any_op
    transform.yield
  }
}
