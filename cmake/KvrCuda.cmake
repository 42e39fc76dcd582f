# kvr_find_cuda(): decides about the CUDA module and says so. Sets KVR_CUDA_IS
# (ON, OFF) in the caller. KVR_CUDA is AUTO (built
# where there is a toolkit), ON (its absence is an error) or OFF.
# SPDX-License-Identifier: GPL-3.0-or-later
set(KVR_CUDA AUTO CACHE STRING "the CUDA module: AUTO, ON or OFF")
set_property(CACHE KVR_CUDA PROPERTY STRINGS AUTO ON OFF)
include(CheckLanguage)

# Those of 8.0, 9.0 and 10.0 that this nvcc knows, and PTX of the last.
function(kvr_cuda_architectures out version)
    if(version VERSION_LESS 11.8)
        set(list 80)
    elseif(version VERSION_LESS 12.8)
        set(list 80-real 90)
    else()
        set(list 80-real 90-real 100)
    endif()
    set(${out} ${list} PARENT_SCOPE)
endfunction()

# Why there can be no module, or "".
function(kvr_cuda_obstacle out)
    if(NOT KVR_SANITIZE STREQUAL "")
        set(${out} "not with KVR_SANITIZE" PARENT_SCOPE)
        return()
    endif()
    if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc AND
       "$ENV{CUDACXX}" STREQUAL "")
        set(ENV{CUDACXX} /usr/local/cuda/bin/nvcc)
    endif()
    check_language(CUDA)
    if(NOT CMAKE_CUDA_COMPILER)
        set(${out} "no nvcc that works" PARENT_SCOPE)
        return()
    endif()
    set(CMAKE_CUDA_COMPILER ${CMAKE_CUDA_COMPILER} PARENT_SCOPE)
    find_package(CUDAToolkit QUIET)
    if(NOT TARGET CUDA::cublas)
        set(${out} "nvcc but no cuBLAS" PARENT_SCOPE)
        return()
    endif()
    if(CUDAToolkit_VERSION VERSION_LESS 11.0)
        set(${out} "CUDA ${CUDAToolkit_VERSION}, 11.0 is needed" PARENT_SCOPE)
        return()
    endif()
    set(${out} "" PARENT_SCOPE)
endfunction()

macro(kvr_find_cuda)
    set(KVR_CUDA_IS OFF)
    if(NOT KVR_CUDA MATCHES "^(AUTO|ON|OFF)$")
        message(FATAL_ERROR "KVR_CUDA=${KVR_CUDA}: expected AUTO, ON or OFF")
    endif()
    if(KVR_CUDA STREQUAL "OFF")
        message(STATUS "CUDA: off (KVR_CUDA=OFF); capture runs on the CPU")
    else()
        kvr_cuda_obstacle(KVR_CUDA_WHY)
        if(KVR_CUDA_WHY STREQUAL "")
            set(KVR_CUDA_IS ON)
        elseif(KVR_CUDA STREQUAL "ON")
            message(FATAL_ERROR "KVR_CUDA=ON: ${KVR_CUDA_WHY}. Install the "
                "CUDA toolkit (Debian 12 non-free: nvidia-cuda-toolkit; "
                "NVIDIA's packages: cuda-nvcc-13-0 libcublas-dev-13-0) and put "
                "nvcc into PATH or CUDACXX, or configure with -DKVR_CUDA=AUTO")
        else()
            message(STATUS "CUDA: ${KVR_CUDA_WHY}: no module is built, capture "
                "runs on the CPU (KVR_CUDA=AUTO)")
        endif()
    endif()
endmacro()
