# The kernels: KVR_CUDA_KERNELS, absolute paths, for nvcc and for the
# emulation of tests/simt alike. KVR_CUDA_LAB: earlier versions, for tests.
# KVR_CUDA_HOST: the host's side.
# SPDX-License-Identifier: GPL-3.0-or-later
set(KVR_CUDA_KERNELS attention.cu attention_flash.cu attention_rows.cu
    attention_step.cu elementwise.cu embed.cu expand.cu log_prob.cu norm.cu
    value_out.cu)
set(KVR_CUDA_LAB lab/attention_rows_1.cu lab/attention_rows_2.cu)
list(TRANSFORM KVR_CUDA_KERNELS PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
set(KVR_CUDA_HOST memory.cu module.cu open.cu products.cu reporter.cu
    reporter_thread.cu rows.cu weight.cu)
list(TRANSFORM KVR_CUDA_HOST PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(TRANSFORM KVR_CUDA_LAB PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
