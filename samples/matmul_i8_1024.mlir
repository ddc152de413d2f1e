// A quantized matmul: 8-bit integers in, 32-bit integers out.
func.func @matmul_i8(%a: tensor<1024x1024xi8>, %b: tensor<1024x1024xi8>) -> tensor<1024x1024xi32> {
  %z = arith.constant 0 : i32
  %e = tensor.empty() : tensor<1024x1024xi32>
  %f = linalg.fill ins(%z : i32) outs(%e : tensor<1024x1024xi32>) -> tensor<1024x1024xi32>
  %r = linalg.matmul ins(%a, %b : tensor<1024x1024xi8>, tensor<1024x1024xi8>) outs(%f : tensor<1024x1024xi32>) -> tensor<1024x1024xi32>
  return %r : tensor<1024x1024xi32>
}
