// A linear layer with GELU in the torch dialect, as torch.export gives it: the weight is transposed, the ABI asynchronous.
module @module {
  func.func @main(%x: !torch.vtensor<[16,64],f32>, %w: !torch.vtensor<[128,64],f32>, %bias: !torch.vtensor<[128],f32>) -> !torch.vtensor<[16,128],f32> attributes {torch.assume_strict_symbolic_shapes} {
    %none = torch.constant.str "none"
    %0 = torch.aten.linear %x, %w, %bias : !torch.vtensor<[16,64],f32>, !torch.vtensor<[128,64],f32>, !torch.vtensor<[128],f32> -> !torch.vtensor<[16,128],f32>
    %1 = torch.aten.gelu %0, %none : !torch.vtensor<[16,128],f32>, !torch.str -> !torch.vtensor<[16,128],f32>
    return %1 : !torch.vtensor<[16,128],f32>
  }
}
