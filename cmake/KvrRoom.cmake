# kvr_room(NAME [SOURCES ..] [PARTS ..] [ROOMS ..] [LIBRARIES ..]
#     [PUBLIC_LIBRARIES ..] [HEADERS ..])
#
# One room of the house: a static library whose public include path is its own
# folder. PARTS are its folders, each a kvr_part. ROOMS are the rooms that it
# may include (tests/lint/includes.txt); LIBRARIES stay private, so that no
# other room can include their headers. HEADERS are installed, without them
# every kvr_*.h of the folder.
# SPDX-License-Identifier: GPL-3.0-or-later
add_library(kvr_flags INTERFACE)
target_compile_options(kvr_flags INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes
    -Wmissing-prototypes -Wvla -Wundef -Wpointer-arith -Wwrite-strings
    -fopenmp-simd -ffp-contract=off -fno-math-errno -fno-trapping-math)
target_compile_definitions(kvr_flags INTERFACE
    _POSIX_C_SOURCE=200809L _FILE_OFFSET_BITS=64)
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
    # It says which loops it did not vectorise (slower, not wrong), and takes
    # rows of tables that end early, the rest being 0, for mistakes.
    target_compile_options(kvr_flags INTERFACE
        -Wno-pass-failed -Wno-missing-field-initializers)
endif()
if(KVR_WERROR)
    target_compile_options(kvr_flags INTERFACE -Werror)
endif()
if(NOT KVR_SANITIZE STREQUAL "") # what no one filled is no number
    target_compile_definitions(kvr_flags INTERFACE KVR_POISON)
endif()
if(KVR_SANITIZE STREQUAL "address")
    target_compile_options(kvr_flags INTERFACE
        -fsanitize=address,undefined,float-cast-overflow
        -fno-sanitize-recover=all
        -fno-omit-frame-pointer)
    target_link_options(kvr_flags INTERFACE
        -fsanitize=address,undefined,float-cast-overflow)
elseif(KVR_SANITIZE STREQUAL "thread")
    target_compile_options(kvr_flags INTERFACE
        -fsanitize=thread -fno-omit-frame-pointer)
    target_link_options(kvr_flags INTERFACE -fsanitize=thread)
elseif(NOT KVR_SANITIZE STREQUAL "")
    message(FATAL_ERROR "KVR_SANITIZE=${KVR_SANITIZE}: expected address, "
        "thread or nothing")
endif()

# kvr_part(NAME SOURCES .. [PARTS ..] [ROOMS ..] [LIBRARIES ..]): a folder of a
# room, which sees itself and the parts and rooms that it names. Other rooms see
# none of it: a part is compiled into its room's library.
function(kvr_part name)
    cmake_parse_arguments(PART "" "" "SOURCES;PARTS;ROOMS;LIBRARIES" ${ARGN})
    add_library(${name} OBJECT ${PART_SOURCES})
    target_include_directories(${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
    target_link_libraries(${name}
        PUBLIC ${PART_PARTS} ${PART_ROOMS}
        PRIVATE kvr_flags ${PART_LIBRARIES})
    set_target_properties(${name} PROPERTIES
        C_VISIBILITY_PRESET hidden KVR_LIBRARIES "${PART_LIBRARIES}")
endfunction()

# For the room's tests: NAME_inside sees its own headers and those of its parts.
function(kvr_inside name)
    add_library(${name}_inside INTERFACE)
    target_include_directories(${name}_inside
        INTERFACE ${CMAKE_CURRENT_SOURCE_DIR})
    target_link_libraries(${name}_inside INTERFACE ${name})
    foreach(part ${ARGN})
        target_include_directories(${name}_inside INTERFACE
            $<TARGET_PROPERTY:${part},INTERFACE_INCLUDE_DIRECTORIES>)
    endforeach()
endfunction()

function(kvr_room name)
    cmake_parse_arguments(ROOM "" ""
        "SOURCES;PARTS;ROOMS;LIBRARIES;PUBLIC_LIBRARIES;HEADERS" ${ARGN})
    foreach(part ${ROOM_PARTS})
        list(APPEND ROOM_SOURCES $<TARGET_OBJECTS:${part}>)
        list(APPEND part_includes
            $<TARGET_PROPERTY:${part},INTERFACE_INCLUDE_DIRECTORIES>)
        get_target_property(libraries ${part} KVR_LIBRARIES)
        list(APPEND ROOM_LIBRARIES ${libraries})
    endforeach()
    list(REMOVE_DUPLICATES ROOM_LIBRARIES)
    add_library(${name} STATIC ${ROOM_SOURCES})
    target_include_directories(${name}
        PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}>
        PRIVATE ${part_includes})
    # What installed headers declare is exported, as they say; nothing else.
    set_target_properties(${name} PROPERTIES C_VISIBILITY_PRESET hidden)
    target_link_libraries(${name}
        PUBLIC ${ROOM_ROOMS} ${ROOM_PUBLIC_LIBRARIES}
        PRIVATE $<BUILD_INTERFACE:kvr_flags> ${ROOM_LIBRARIES})
    kvr_inside(${name} ${ROOM_PARTS})
    if(NOT name MATCHES "_double$") # those are for tests only
        kvr_install_room(${name} ${ROOM_HEADERS})
    endif()
endfunction()
