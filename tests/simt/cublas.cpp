/* cublas.cpp -- cublas_v2.h by OpenBLAS.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "cublas_v2.h"

#include "kvr_half.h"

#include <cblas.h>
#include <vector>

struct cublasContext {
    cublasMath_t mode;
};

cublasStatus_t cublasCreate(cublasHandle_t *out)
{
    if (simt_fails(SIMT_BLAS))
        return CUBLAS_STATUS_ALLOC_FAILED;
    openblas_set_num_threads(1);
    *out = new cublasContext();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    return handle != nullptr && stream != nullptr
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    handle->mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}

static CBLAS_TRANSPOSE op(cublasOperation_t given)
{
    return given == CUBLAS_OP_T ? CblasTrans : CblasNoTrans;
}

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t op_a,
                           cublasOperation_t op_b, int m, int n, int k,
                           const float *alpha, const float *a, int lda,
                           const float *b, int ldb, const float *beta, float *c,
                           int ldc)
{
    if (handle == nullptr || m < 0 || n < 0 || k < 0 || ldc < m ||
        lda < (op_a == CUBLAS_OP_T ? k : m) ||
        ldb < (op_b == CUBLAS_OP_T ? n : k))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (simt_fails(SIMT_BLAS))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    cblas_sgemm(CblasColMajor, op(op_a), op(op_b), m, n, k, *alpha, a, lda, b,
                ldb, *beta, c, ldc);
    return CUBLAS_STATUS_SUCCESS;
}

static std::vector<float> widened(const void *in, cudaDataType_t type, size_t n)
{
    const uint16_t *half = static_cast<const uint16_t *>(in);
    std::vector<float> out(n);

    if (type == CUDA_R_16F)
        kvr_f16_to_f32_n(out.data(), half, n);
    else
        for (size_t i = 0; i < n; i++)
            out[i] = kvr_bf16_to_f32(half[i]);
    return out;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a,
                            cublasOperation_t op_b, int m, int n, int k,
                            const void *alpha, const void *a,
                            cudaDataType_t type_a, int lda, const void *b,
                            cudaDataType_t type_b, int ldb, const void *beta,
                            void *c, cudaDataType_t type_c, int ldc,
                            cublasComputeType_t compute,
                            cublasGemmAlgo_t algorithm)
{
    if (type_a != type_b || (type_a != CUDA_R_16F && type_a != CUDA_R_16BF) ||
        type_c != CUDA_R_32F || compute != CUBLAS_COMPUTE_32F ||
        algorithm != CUBLAS_GEMM_DEFAULT)
        return CUBLAS_STATUS_INVALID_VALUE;
    const std::vector<float> left =
        widened(a, type_a, (size_t)lda * (size_t)(op_a == CUBLAS_OP_T ? m : k));
    const std::vector<float> right =
        widened(b, type_b, (size_t)ldb * (size_t)(op_b == CUBLAS_OP_T ? k : n));
    return cublasSgemm(handle, op_a, op_b, m, n, k,
                       static_cast<const float *>(alpha), left.data(), lda,
                       right.data(), ldb, static_cast<const float *>(beta),
                       static_cast<float *>(c), ldc);
}
