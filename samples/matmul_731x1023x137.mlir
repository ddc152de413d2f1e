// A matmul whose dims are no multiples of any tile: IREE's own choice of schedule is far off here.
func.func @matmul(%a: tensor<731x137xf32>, %b: tensor<137x1023xf32>) -> tensor<731x1023xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<731x1023xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<731x1023xf32>) -> tensor<731x1023xf32>
  %r = linalg.matmul ins(%a, %b : tensor<731x137xf32>, tensor<137x1023xf32>) outs(%f : tensor<731x1023xf32>) -> tensor<731x1023xf32>
  return %r : tensor<731x1023xf32>
}
