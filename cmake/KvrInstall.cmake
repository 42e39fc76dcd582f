# What `cmake --install` leaves behind: the program, the rooms as kvr::NAME
# with a package config, public headers (flat, in include/kvreplay) and a .pc
# file.
# SPDX-License-Identifier: GPL-3.0-or-later
include(CMakePackageConfigHelpers)
set(KVR_INSTALL_HEADERS ${CMAKE_INSTALL_INCLUDEDIR}/kvreplay)
set(KVR_INSTALL_PACKAGE ${CMAKE_INSTALL_LIBDIR}/cmake/kvreplay)

# kvr_install_room(TARGET [HEADER ..]): the library and the headers that its
# users need; without a list all public ones beside it.
function(kvr_install_room name)
    string(REGEX REPLACE "^kvr_" "" short ${name})
    add_library(kvr::${short} ALIAS ${name})
    set_target_properties(${name} PROPERTIES EXPORT_NAME ${short})
    target_include_directories(${name}
        INTERFACE $<INSTALL_INTERFACE:${KVR_INSTALL_HEADERS}>)
    install(TARGETS ${name} EXPORT kvreplay
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    set(public ${ARGN})
    if(NOT public)
        file(GLOB public CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kvr_*.h)
    endif()
    install(FILES ${public} DESTINATION ${KVR_INSTALL_HEADERS})
endfunction()

# kvr_install_package(): called once, after all rooms.
function(kvr_install_package)
    install(EXPORT kvreplay NAMESPACE kvr:: FILE kvreplay-targets.cmake
        DESTINATION ${KVR_INSTALL_PACKAGE})
    configure_package_config_file(cmake/kvreplay-config.cmake.in
        ${CMAKE_BINARY_DIR}/kvreplay-config.cmake
        INSTALL_DESTINATION ${KVR_INSTALL_PACKAGE})
    write_basic_package_version_file(
        ${CMAKE_BINARY_DIR}/kvreplay-config-version.cmake
        COMPATIBILITY SameMinorVersion)
    install(FILES ${CMAKE_BINARY_DIR}/kvreplay-config.cmake
        ${CMAKE_BINARY_DIR}/kvreplay-config-version.cmake
        cmake/KvrDependencies.cmake
        DESTINATION ${KVR_INSTALL_PACKAGE})
    # The .pc file finds its prefix from where it lies, so the tree may move.
    file(RELATIVE_PATH KVR_PC_PREFIX
        ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
    string(REGEX REPLACE "/$" "" KVR_PC_PREFIX "${KVR_PC_PREFIX}")
    configure_file(cmake/kvreplay.pc.in ${CMAKE_BINARY_DIR}/kvreplay.pc
        @ONLY)
    install(FILES ${CMAKE_BINARY_DIR}/kvreplay.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
