# Finds every library through pkg-config and says which Debian package has a
# missing one. Each becomes a target kvr_dep::NAME. Installed too, for those
# who link the libraries: there a missing one is theirs to report.
# SPDX-License-Identifier: GPL-3.0-or-later
if(TARGET kvr_dep::jansson)
    return()
endif()
find_package(PkgConfig)
if(NOT PkgConfig_FOUND)
    message(FATAL_ERROR "pkg-config is missing: apt-get install pkg-config")
endif()
find_package(Threads REQUIRED)

set(KVR_MISSING "")
# kvr_dependency(NAME "Debian package" pkg-config-name [alternative ..])
function(kvr_dependency name package)
    foreach(module ${ARGN})
        pkg_check_modules(KVR_${name} QUIET IMPORTED_TARGET ${module})
        if(KVR_${name}_FOUND)
            set(KVR_${name}_MODULE ${module} PARENT_SCOPE)
            break()
        endif()
    endforeach()
    if(KVR_${name}_FOUND)
        add_library(kvr_dep::${name} INTERFACE IMPORTED)
        target_link_libraries(kvr_dep::${name}
            INTERFACE PkgConfig::KVR_${name})
        message(STATUS "${name}: ${KVR_${name}_VERSION}, include "
            "'${KVR_${name}_INCLUDE_DIRS}', libraries "
            "'${KVR_${name}_LINK_LIBRARIES}'")
    else()
        set(KVR_MISSING "${KVR_MISSING}\n  ${name}: ${package}" PARENT_SCOPE)
    endif()
endfunction()

kvr_dependency(jansson libjansson-dev jansson)
kvr_dependency(xxhash libxxhash-dev libxxhash)
kvr_dependency(hdf5 libhdf5-dev hdf5-serial hdf5)
kvr_dependency(deflate libdeflate-dev libdeflate)
kvr_dependency(isal libisal-dev libisal)
kvr_dependency(openblas libopenblas-dev openblas)
kvr_dependency(gsl libgsl-dev gsl)
kvr_dependency(pcre2 libpcre2-dev libpcre2-8)
if(KVR_TESTS)
    kvr_dependency(check "check" check)
endif()
find_path(KVR_RANDOM123 Random123/philox.h)
if(NOT KVR_RANDOM123)
    set(KVR_MISSING "${KVR_MISSING}\n  Random123: librandom123-dev")
else()
    add_library(kvr_dep::random123 INTERFACE IMPORTED)
    target_include_directories(kvr_dep::random123 SYSTEM
        INTERFACE ${KVR_RANDOM123})
endif()
if(NOT KVR_MISSING STREQUAL "" AND NOT kvreplay_DIR)
    message(FATAL_ERROR "missing libraries, with the Debian package of each "
        "(./run setup installs them):${KVR_MISSING}")
endif()
