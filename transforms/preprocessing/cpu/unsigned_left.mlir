// Matmuls of 8-bit integers into 32-bit ones for the instruction that adds up four products of unsigned and signed
// bytes (vpdpbusd), twice as many as the one on 16-bit integers (vpdpwssd) that data tiling widens signed bytes for.
//
// The top bit of each element of the left operand is flipped, which makes x, signed, x + 128, unsigned. What that adds
// to the result, 128 times the sum of a column of the right operand, is subtracted again; sums wrap around alike, so
// the result is the same to the last bit. IREE chooses vpdpbusd where the left operand is extended without a sign, the
// right one with it, and encoded matmuls become generated code. Sums of weights that are constants are computed at
// compile time.
//
// Matches   linalg.matmul of i8 x i8 into i32, also with the right operand transposed. Others are left to the flags.
// Untuned, 1024x1024x1024 on one AVX-512 VNNI core (Zen 5): 6.0x, where data_tiling has 3.4x.
#elements = affine_map<(i, j) -> (i, j)>
#rows = affine_map<(i, j) -> (i)>
#columns = affine_map<(i, j) -> (j)>
#swapped = affine_map<(i, j) -> (j, i)>
#left = affine_map<(m, n, k) -> (m, k)>
#right = affine_map<(m, n, k) -> (k, n)>
#right_transposed = affine_map<(m, n, k) -> (n, k)>
#output = affine_map<(m, n, k) -> (m, n)>
module attributes {
  transform.with_named_sequence,
  mlsearch.flags = ["--iree-global-opt-data-tiling", "--iree-global-opt-enable-early-materialization",
                    "--iree-llvmcpu-enable-inner-tiled"]
} {
  util.func private @unsigned_left(
      %left: tensor<?x?xi8>, %right: tensor<?x?xi8>, %init: tensor<?x?xi32>) -> tensor<?x?xi32> {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %zero = arith.constant 0 : i32
    %top_bit = arith.constant -128 : i8
    %seven = arith.constant 7 : i32
    %m = tensor.dim %left, %c0 : tensor<?x?xi8>
    %k = tensor.dim %left, %c1 : tensor<?x?xi8>
    %n = tensor.dim %right, %c1 : tensor<?x?xi8>

    %left_space = tensor.empty(%m, %k) : tensor<?x?xi8>
    %unsigned = linalg.generic {indexing_maps = [#elements, #elements], iterator_types = ["parallel", "parallel"]}
        ins(%left : tensor<?x?xi8>) outs(%left_space : tensor<?x?xi8>) {
    ^bb0(%x: i8, %unused: i8):
      %flipped = arith.xori %x, %top_bit : i8
      linalg.yield %flipped : i8
    } -> tensor<?x?xi8>
    %product = linalg.generic {
        indexing_maps = [#left, #right, #output], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%unsigned, %right : tensor<?x?xi8>, tensor<?x?xi8>) outs(%init : tensor<?x?xi32>) {
    ^bb0(%x: i8, %y: i8, %sum: i32):
      %wide_x = arith.extui %x : i8 to i32
      %wide_y = arith.extsi %y : i8 to i32
      %xy = arith.muli %wide_x, %wide_y : i32
      %added = arith.addi %sum, %xy : i32
      linalg.yield %added : i32
    } -> tensor<?x?xi32>

    // After the product: the other way round, IREE puts the subtraction into one dispatch with these sums.
    %sums_space = tensor.empty(%n) : tensor<?xi32>
    %no_sums = linalg.fill ins(%zero : i32) outs(%sums_space : tensor<?xi32>) -> tensor<?xi32>
    %sums = linalg.generic {
        indexing_maps = [#swapped, #rows], iterator_types = ["parallel", "reduction"]}
        ins(%right : tensor<?x?xi8>) outs(%no_sums : tensor<?xi32>) {
    ^bb0(%y: i8, %sum: i32):
      %wide = arith.extsi %y : i8 to i32
      %added = arith.addi %sum, %wide : i32
      linalg.yield %added : i32
    } -> tensor<?xi32>
    %result_space = tensor.empty(%m, %n) : tensor<?x?xi32>
    %result = linalg.generic {
        indexing_maps = [#elements, #columns, #elements], iterator_types = ["parallel", "parallel"]}
        ins(%product, %sums : tensor<?x?xi32>, tensor<?xi32>) outs(%result_space : tensor<?x?xi32>) {
    ^bb0(%x: i32, %sum: i32, %unused: i32):
      %excess = arith.shli %sum, %seven : i32
      %exact = arith.subi %x, %excess : i32
      linalg.yield %exact : i32
    } -> tensor<?x?xi32>
    util.return %result : tensor<?x?xi32>
  }

  util.func private @unsigned_left_transposed_right(
      %left: tensor<?x?xi8>, %right: tensor<?x?xi8>, %init: tensor<?x?xi32>) -> tensor<?x?xi32> {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %zero = arith.constant 0 : i32
    %top_bit = arith.constant -128 : i8
    %seven = arith.constant 7 : i32
    %m = tensor.dim %left, %c0 : tensor<?x?xi8>
    %k = tensor.dim %left, %c1 : tensor<?x?xi8>
    %n = tensor.dim %right, %c0 : tensor<?x?xi8>

    %left_space = tensor.empty(%m, %k) : tensor<?x?xi8>
    %unsigned = linalg.generic {indexing_maps = [#elements, #elements], iterator_types = ["parallel", "parallel"]}
        ins(%left : tensor<?x?xi8>) outs(%left_space : tensor<?x?xi8>) {
    ^bb0(%x: i8, %unused: i8):
      %flipped = arith.xori %x, %top_bit : i8
      linalg.yield %flipped : i8
    } -> tensor<?x?xi8>
    %product = linalg.generic {
        indexing_maps = [#left, #right_transposed, #output], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%unsigned, %right : tensor<?x?xi8>, tensor<?x?xi8>) outs(%init : tensor<?x?xi32>) {
    ^bb0(%x: i8, %y: i8, %sum: i32):
      %wide_x = arith.extui %x : i8 to i32
      %wide_y = arith.extsi %y : i8 to i32
      %xy = arith.muli %wide_x, %wide_y : i32
      %added = arith.addi %sum, %xy : i32
      linalg.yield %added : i32
    } -> tensor<?x?xi32>

    // After the product: the other way round, IREE puts the subtraction into one dispatch with these sums.
    %sums_space = tensor.empty(%n) : tensor<?xi32>
    %no_sums = linalg.fill ins(%zero : i32) outs(%sums_space : tensor<?xi32>) -> tensor<?xi32>
    %sums = linalg.generic {
        indexing_maps = [#elements, #rows], iterator_types = ["parallel", "reduction"]}
        ins(%right : tensor<?x?xi8>) outs(%no_sums : tensor<?xi32>) {
    ^bb0(%y: i8, %sum: i32):
      %wide = arith.extsi %y : i8 to i32
      %added = arith.addi %sum, %wide : i32
      linalg.yield %added : i32
    } -> tensor<?xi32>
    %result_space = tensor.empty(%m, %n) : tensor<?x?xi32>
    %result = linalg.generic {
        indexing_maps = [#elements, #columns, #elements], iterator_types = ["parallel", "parallel"]}
        ins(%product, %sums : tensor<?x?xi32>, tensor<?xi32>) outs(%result_space : tensor<?x?xi32>) {
    ^bb0(%x: i32, %sum: i32, %unused: i32):
      %excess = arith.shli %sum, %seven : i32
      %exact = arith.subi %x, %excess : i32
      linalg.yield %exact : i32
    } -> tensor<?x?xi32>
    util.return %result : tensor<?x?xi32>
  }

  transform.named_sequence @match_plain(%op: !transform.any_op {transform.readonly})
      -> (!transform.any_value, !transform.any_value) {
    %inputs, %outputs = transform.iree.match.cast_compatible_dag_from_root %op {
    ^bb0(%left: tensor<?x?xi8>, %right: tensor<?x?xi8>, %init: tensor<?x?xi32>):
      %matmul = linalg.matmul ins(%left, %right : tensor<?x?xi8>, tensor<?x?xi8>)
          outs(%init : tensor<?x?xi32>) -> tensor<?x?xi32>
    } : (!transform.any_op) -> (!transform.any_value, !transform.any_value)
    transform.yield %inputs, %outputs : !transform.any_value, !transform.any_value
  }
  transform.named_sequence @rewrite_plain(
      %inputs: !transform.any_value {transform.readonly}, %output: !transform.any_value {transform.readonly}) {
    %matmul = transform.get_defining_op %output : (!transform.any_value) -> !transform.any_op
    %module = transform.util.get_nearest_symbol_table %matmul : (!transform.any_op) -> !transform.any_op
    %function = transform.util.import_symbol @unsigned_left into %module if undefined
        : (!transform.any_op) -> !transform.any_op
    transform.util.cast_and_call inline_call %function(%inputs) -> %output after %matmul {
      transform.type_conversion.tensor.cast_shape_dynamic_dims
    } : (!transform.any_op, !transform.any_value, !transform.any_value, !transform.any_op) -> ()
    transform.yield
  }

  transform.named_sequence @match_transposed(%op: !transform.any_op {transform.readonly})
      -> (!transform.any_value, !transform.any_value) {
    %inputs, %outputs = transform.iree.match.cast_compatible_dag_from_root %op {
    ^bb0(%left: tensor<?x?xi8>, %right: tensor<?x?xi8>, %init: tensor<?x?xi32>):
      %matmul = linalg.matmul indexing_maps = [#left, #right_transposed, #output]
          ins(%left, %right : tensor<?x?xi8>, tensor<?x?xi8>)
          outs(%init : tensor<?x?xi32>) -> tensor<?x?xi32>
    } : (!transform.any_op) -> (!transform.any_value, !transform.any_value)
    transform.yield %inputs, %outputs : !transform.any_value, !transform.any_value
  }
  transform.named_sequence @rewrite_transposed(
      %inputs: !transform.any_value {transform.readonly}, %output: !transform.any_value {transform.readonly}) {
    %matmul = transform.get_defining_op %output : (!transform.any_value) -> !transform.any_op
    %module = transform.util.get_nearest_symbol_table %matmul : (!transform.any_op) -> !transform.any_op
    %function = transform.util.import_symbol @unsigned_left_transposed_right into %module if undefined
        : (!transform.any_op) -> !transform.any_op
    transform.util.cast_and_call inline_call %function(%inputs) -> %output after %matmul {
      transform.type_conversion.tensor.cast_shape_dynamic_dims
    } : (!transform.any_op, !transform.any_value, !transform.any_value, !transform.any_op) -> ()
    transform.yield
  }

  transform.named_sequence @__transform_main(%payload: !transform.any_op) {
    %functions = transform.structured.match ops{["util.func"]} in %payload : (!transform.any_op) -> !transform.any_op
    transform.foreach %functions : !transform.any_op {
    ^bb0(%function: !transform.any_op):
      %rewritten = transform.foreach_match in %function
          @match_plain -> @rewrite_plain,
          @match_transposed -> @rewrite_transposed
        : (!transform.any_op) -> !transform.any_op
    }
    transform.apply_dce to %payload : !transform.any_op
    transform.yield
  }
}
