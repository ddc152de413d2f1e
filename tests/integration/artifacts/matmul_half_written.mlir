// Computes and stores the upper half of the output only, as a strategy without its workgroup count does.
func.func @task(%a: tensor<24x137xf32>, %b: tensor<137x40xf32>,
                %out: !hal.buffer {iree.abi.output = 0 : index}) -> tensor<24x40xf32> {
  %c1 = arith.constant 1 : index
  %product = flow.dispatch.workgroups[%c1, %c1, %c1](%a, %b) :
      (tensor<24x137xf32>, tensor<137x40xf32>) -> tensor<24x40xf32> =
      (%lhs: !iree_tensor_ext.dispatch.tensor<readonly:tensor<24x137xf32>>,
       %rhs: !iree_tensor_ext.dispatch.tensor<readonly:tensor<137x40xf32>>,
       %result: !iree_tensor_ext.dispatch.tensor<writeonly:tensor<24x40xf32>>) {
    %zero = arith.constant 0.0 : f32
    %l = iree_tensor_ext.dispatch.tensor.load %lhs, offsets = [0, 0], sizes = [12, 137], strides = [1, 1]
        : !iree_tensor_ext.dispatch.tensor<readonly:tensor<24x137xf32>> -> tensor<12x137xf32>
    %r = iree_tensor_ext.dispatch.tensor.load %rhs, offsets = [0, 0], sizes = [137, 40], strides = [1, 1]
        : !iree_tensor_ext.dispatch.tensor<readonly:tensor<137x40xf32>> -> tensor<137x40xf32>
    %empty = tensor.empty() : tensor<12x40xf32>
    %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<12x40xf32>) -> tensor<12x40xf32>
    %half = linalg.matmul ins(%l, %r : tensor<12x137xf32>, tensor<137x40xf32>)
                          outs(%fill : tensor<12x40xf32>) -> tensor<12x40xf32>
    iree_tensor_ext.dispatch.tensor.store %half, %result, offsets = [0, 0], sizes = [12, 40], strides = [1, 1]
        : tensor<12x40xf32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<24x40xf32>>
    flow.return
  }
  return %product : tensor<24x40xf32>
}
