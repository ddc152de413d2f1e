// An ONNX graph as IREE's importer writes it: two linear layers, constant weights, an odd name, an asynchronous ABI.
module {
  func.func @"tf2onnx$graph 0"(%arg0: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,3],f32> attributes {torch.onnx_meta.ir_version = 8 : si64, torch.onnx_meta.opset_version = 17 : si64, torch.onnx_meta.producer_name = "tf2onnx", torch.onnx_meta.producer_version = "1.16.1"} {
    %w0 = torch.operator "onnx.Constant"() {torch.onnx.value = dense<[[0.5, -0.25, 0.125, 0.75, -0.5, 0.25], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [-0.6, -0.5, -0.4, -0.3, -0.2, -0.1], [1.0, 0.0, -1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, -1.0, 0.0, 1.0], [0.3, 0.1, 0.4, 0.1, 0.5, 0.9], [0.2, 0.7, 0.1, 0.8, 0.2, 0.8], [-0.1, 0.6, -0.1, 0.8, -0.3, 0.3]]> : tensor<8x6xf32>} : () -> !torch.vtensor<[8,6],f32>
    %b0 = torch.operator "onnx.Constant"() {torch.onnx.value = dense<[0.1, -0.1, 0.2, -0.2, 0.3, -0.3]> : tensor<6xf32>} : () -> !torch.vtensor<[6],f32>
    %w1 = torch.operator "onnx.Constant"() {torch.onnx.value = dense<[[0.5, -0.5, 0.25], [0.1, 0.9, 0.2], [-0.8, 0.3, 0.7], [0.4, 0.6, -0.5], [0.5, -0.4, 0.6], [0.3, 0.2, -0.7]]> : tensor<6x3xf32>} : () -> !torch.vtensor<[6,3],f32>
    %b1 = torch.operator "onnx.Constant"() {torch.onnx.value = dense<[0.0, 0.1, -0.1]> : tensor<3xf32>} : () -> !torch.vtensor<[3],f32>
    %0 = torch.operator "onnx.Gemm"(%arg0, %w0, %b0) : (!torch.vtensor<[4,8],f32>, !torch.vtensor<[8,6],f32>, !torch.vtensor<[6],f32>) -> !torch.vtensor<[4,6],f32>
    %1 = torch.operator "onnx.Relu"(%0) : (!torch.vtensor<[4,6],f32>) -> !torch.vtensor<[4,6],f32>
    %2 = torch.operator "onnx.Gemm"(%1, %w1, %b1) : (!torch.vtensor<[4,6],f32>, !torch.vtensor<[6,3],f32>, !torch.vtensor<[3],f32>) -> !torch.vtensor<[4,3],f32>
    return %2 : !torch.vtensor<[4,3],f32>
  }
}
