// A two-layer perceptron in StableHLO, as JAX exports it: the parameters are arguments.
module @jit_mlp attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%w0: tensor<64x128xf32>, %b0: tensor<128xf32>, %w1: tensor<128x10xf32>, %b1: tensor<10xf32>, %x: tensor<32x64xf32>) -> (tensor<32x10xf32> {jax.result_info = "result"}) {
    %zero = stablehlo.constant dense<0.0> : tensor<32x128xf32>
    %0 = stablehlo.dot_general %x, %w0, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<32x64xf32>, tensor<64x128xf32>) -> tensor<32x128xf32>
    %1 = stablehlo.broadcast_in_dim %b0, dims = [1] : (tensor<128xf32>) -> tensor<32x128xf32>
    %2 = stablehlo.add %0, %1 : tensor<32x128xf32>
    %3 = stablehlo.maximum %2, %zero : tensor<32x128xf32>
    %4 = stablehlo.dot_general %3, %w1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<32x128xf32>, tensor<128x10xf32>) -> tensor<32x10xf32>
    %5 = stablehlo.broadcast_in_dim %b1, dims = [1] : (tensor<10xf32>) -> tensor<32x10xf32>
    %6 = stablehlo.add %4, %5 : tensor<32x10xf32>
    return %6 : tensor<32x10xf32>
  }
}
