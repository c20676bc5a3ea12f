set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# A compiler cache where there is one that works here (a home folder it cannot write to makes ccache fail).
find_program(TIDEMARK_CCACHE ccache)
mark_as_advanced(TIDEMARK_CCACHE)
if(TIDEMARK_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  file(WRITE ${CMAKE_BINARY_DIR}/ccache_probe.cpp "int main() {}\n")
  execute_process(COMMAND ${TIDEMARK_CCACHE} ${CMAKE_CXX_COMPILER} -c ccache_probe.cpp -o ccache_probe.o
                  WORKING_DIRECTORY ${CMAKE_BINARY_DIR} RESULT_VARIABLE TIDEMARK_CCACHE_STATUS OUTPUT_QUIET ERROR_QUIET)
  if(TIDEMARK_CCACHE_STATUS EQUAL 0)
    # It takes what is compiled with a precompiled header only when told that macros and times in it do not matter.
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${TIDEMARK_CCACHE})
  endif()
endif()

set(TIDEMARK_SANITIZE "" CACHE STRING "Sanitizers to build with, as -fsanitize takes them: address,undefined or thread")
option(TIDEMARK_FUZZ "Build the fuzz targets with clang's libFuzzer; when off, they get a small driver of our own" OFF)

# What every target of ours is compiled with.
add_library(tidemark_options INTERFACE)
target_include_directories(tidemark_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(tidemark_options INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion
                                                  # Of files compiled together a local name may be another's.
                                                  $<IF:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>,$<IF:$<CXX_COMPILER_ID:GNU>,-Wshadow=local;-Wno-subobject-linkage,-Wno-shadow>,-Wshadow>
                                                  -Wnon-virtual-dtor -Woverloaded-virtual -Werror
                                                  # g++ 12 sees overlaps and overflows in strings that cannot be (GCC
                                                  # bugs 105651, 105329), above all from a precompiled header.
                                                  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
                                                  $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds>
                                                  $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow>
                                                  $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overread>
                                                  # Its garbage is not collected before there are 600 MB of it: a sixth
                                                  # of the time, for up to 1.1 GB while a file is compiled, not 0.8.
                                                  "$<$<CXX_COMPILER_ID:GNU>:SHELL:--param ggc-min-heapsize=600000>")
if(TIDEMARK_SANITIZE)
  target_compile_definitions(tidemark_options INTERFACE TIDEMARK_SANITIZED)
  # g++ 12 warns falsely about std::variant and std::string once sanitizers add their branches (GCC bug 105562).
  target_compile_options(tidemark_options INTERFACE -fsanitize=${TIDEMARK_SANITIZE} -fno-sanitize-recover=all
                                                    -fno-omit-frame-pointer
                                                    # A quarter of a build's time: null faults by itself, object-size
                                                    # is AddressSanitizer's too. Casts (alignment, vptr) only the preset
                                                    # "fuzz" looks at, from clang++, in scripts/test --all.
                                                    $<$<CXX_COMPILER_ID:GNU>:-fno-sanitize=null,object-size,alignment,vptr>
                                                    $<$<CXX_COMPILER_ID:GNU>:-Wno-error=maybe-uninitialized>)
  # Their run times are called at every allocation and every larger frame: directly, where they are in the program.
  target_link_options(tidemark_options INTERFACE -fsanitize=${TIDEMARK_SANITIZE}
                                                 $<$<CXX_COMPILER_ID:GNU>:-static-libasan;-static-libubsan>)
endif()
if(TIDEMARK_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "TIDEMARK_FUZZ needs clang++: use the preset 'fuzz'")
  endif()
  target_compile_options(tidemark_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# A build without precompiled headers (the preset "debug") sees that files include what they use.
option(TIDEMARK_PRECOMPILE "Precompile the headers that many files include (cmake/precompiled)" ON)

function(tidemark_precompile target from)
  if(TIDEMARK_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM ${from})
    # So that a compiler cache sees what the header holds.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  endif()
endfunction()

# Files are compiled together, some twelve at a time, of neighbouring folders where those are small: half of a build's time,
# most of which goes into the same templates again and again. So a name without linkage is one of its room, not only of its
# file. Without it (the preset "debug") each file is compiled alone, which sees that it includes what it uses.
# With "tests" only tests are compiled together: scripts/sabotage changes one file of the program at a time.
set(TIDEMARK_TOGETHER ON CACHE STRING "Compile the files of a folder together: ON, OFF or tests")

# tidemark_together(target [BUT file ...]): at most twelve at a time, since a change compiles all of them again. Not the files
# that are named, each of which says why where it is named.
function(tidemark_together target)
  if(NOT TIDEMARK_TOGETHER OR (TIDEMARK_TOGETHER STREQUAL "tests" AND NOT target MATCHES "_test$|_golden$"))
    return()
  endif()
  set(most 12)
  cmake_parse_arguments(ARG "" "" "BUT" ${ARGN})
  get_target_property(files ${target} SOURCES)
  list(FILTER files INCLUDE REGEX "\\.cpp$")
  list(SORT files)
  set(folders)
  foreach(file IN LISTS files)
    cmake_path(IS_ABSOLUTE file absolute)
    if(absolute)
      cmake_path(RELATIVE_PATH file OUTPUT_VARIABLE name)
    else()
      set(name ${file})
    endif()
    if(NOT name IN_LIST ARG_BUT)
      get_filename_component(folder ${file} DIRECTORY)
      string(MAKE_C_IDENTIFIER "in_${folder}" folder)
      list(APPEND folders ${folder})
      list(APPEND ${folder} ${file})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES folders)
  # A folder joins the unit that is open where it fits whole; else it begins others, of even numbers of files.
  set(unit 0)
  set(count ${most})
  foreach(folder IN LISTS folders)
    list(LENGTH ${folder} left)
    math(EXPR together "${count} + ${left}")
    if(together GREATER most)
      math(EXPR units "(${left} + ${most} - 1) / ${most}")
      math(EXPR each "(${left} + ${units} - 1) / ${units}")
      set(count ${each})
    else()
      set(each ${most})
    endif()
    foreach(file IN LISTS ${folder})
      if(count EQUAL each)
        math(EXPR unit "${unit} + 1")
        set(count 0)
      endif()
      math(EXPR count "${count} + 1")
      set_source_files_properties(${file} PROPERTIES UNITY_GROUP ${unit})
    endforeach()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# CUDA with its compiler, and NCCL: both, or the GPU back end is not built.
option(TIDEMARK_CUDA "Build the GPU back end where CUDA and NCCL are found" ON)
set(TIDEMARK_CUDA_FOUND FALSE)
if(TIDEMARK_CUDA AND NOT TIDEMARK_SANITIZE)
  include(CheckLanguage)
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND)
    if(NOT DEFINED CMAKE_CUDA_COMPILER AND CUDAToolkit_NVCC_EXECUTABLE)
      set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
    endif()
    check_language(CUDA)
    find_library(TIDEMARK_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR} /usr/lib/x86_64-linux-gnu)
    find_path(TIDEMARK_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    mark_as_advanced(TIDEMARK_NCCL_LIBRARY TIDEMARK_NCCL_INCLUDE)
    if(CMAKE_CUDA_COMPILER AND TIDEMARK_NCCL_LIBRARY AND TIDEMARK_NCCL_INCLUDE)
      # Code for Ampere, which later devices compile for themselves. `scripts/test --all` also compiles for Hopper and Blackwell.
      set(TIDEMARK_CUDA_ARCHITECTURES 80 CACHE STRING "What nvcc compiles for")
      set(CMAKE_CUDA_ARCHITECTURES ${TIDEMARK_CUDA_ARCHITECTURES})
      enable_language(CUDA)
      # CMake 3.25 does not know what CUDA 13 can.
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
      set(TIDEMARK_CUDA_FOUND TRUE)
      add_library(tidemark_nccl INTERFACE)
      add_library(tidemark::nccl ALIAS tidemark_nccl)
      target_include_directories(tidemark_nccl SYSTEM INTERFACE ${TIDEMARK_NCCL_INCLUDE})
      target_link_libraries(tidemark_nccl INTERFACE ${TIDEMARK_NCCL_LIBRARY})
      # nvcc does not know the warnings of the C++ compiler.
      add_library(tidemark_cuda_options INTERFACE)
      target_include_directories(tidemark_cuda_options INTERFACE ${CMAKE_SOURCE_DIR})
      target_compile_options(tidemark_cuda_options INTERFACE
        $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wsign-conversion;-Werror>
        $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Werror;--Werror=all-warnings>)
    endif()
  endif()
endif()

# How a release is optimized, by what it is for: the engine and real numbers for speed; what writes programs and searches
# layouts at -O1, a third quicker to compile and as quick to run within a few percent; what runs once in an answer (readers,
# printers, the command line) at -Og, twice as quick to compile.
set(tidemark_level_fast -O3)
set(tidemark_level_even -O1 -finline-small-functions -finline-functions -fstrict-aliasing)
set(tidemark_level_once -Og)

# tidemark_library(name [LEVEL fast|even|once] SOURCES a.cpp ... DEPENDS tidemark::x ... PRIVATE fmt::fmt ... [ALONE b.cpp ...])
# DEPENDS are our own libraries, and the ones whose headers ours show; PRIVATE ones stay in the .cpp files. ALONE are files
# that are not compiled together with others.
function(tidemark_library name)
  cmake_parse_arguments(ARG "" "LEVEL" "SOURCES;DEPENDS;PRIVATE;ALONE" ${ARGN})
  add_library(tidemark_${name} STATIC ${ARG_SOURCES})
  add_library(tidemark::${name} ALIAS tidemark_${name})
  tidemark_compile(tidemark_${name} ${ARGN})
endfunction()

# tidemark_objects(name ...): the same, as objects of another library.
function(tidemark_objects name)
  cmake_parse_arguments(ARG "" "LEVEL" "SOURCES;DEPENDS;PRIVATE;ALONE" ${ARGN})
  add_library(tidemark_${name} OBJECT ${ARG_SOURCES})
  tidemark_compile(tidemark_${name} ${ARGN})
endfunction()

function(tidemark_compile target)
  cmake_parse_arguments(ARG "" "LEVEL" "SOURCES;DEPENDS;PRIVATE;ALONE" ${ARGN})
  if(NOT ARG_LEVEL)
    set(ARG_LEVEL even)
  endif()
  target_link_libraries(${target} PUBLIC ${ARG_DEPENDS} PRIVATE tidemark_options fmt::fmt ${ARG_PRIVATE})
  target_compile_options(${target} PRIVATE "$<$<CONFIG:Release>:${tidemark_level_${ARG_LEVEL}}>")
  tidemark_precompile(${target} tidemark_often_${ARG_LEVEL})
  tidemark_together(${target} BUT ${ARG_ALONE})
endfunction()

# Most of the time goes into compiling tests, little into running their own code.
set(tidemark_test_options $<$<CONFIG:Release,RelWithDebInfo>:-O0>)

# Not of the target `all`: by push they run under sanitizers only (scripts/test).
add_custom_target(unit_tests COMMENT "Tests labelled unit")
add_custom_target(job_tests COMMENT "Tests labelled job")

# What `scripts/test` leaves to `scripts/test --all`: `name | what shows the same by push`, a line each. A test that is named
# there has the label `all`.
set(tidemark_only_with_all ${CMAKE_SOURCE_DIR}/tests/only_with_all.txt)
file(STRINGS ${tidemark_only_with_all} tidemark_named_there REGEX "^[^# ]")
list(TRANSFORM tidemark_named_there REPLACE " *\\|.*$" "")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tidemark_only_with_all})

# tidemark_label(test label): of a test that is no suite of GoogleTest's.
function(tidemark_label test label)
  if(test IN_LIST tidemark_named_there)
    list(APPEND label all)
  endif()
  set_tests_properties(${test} PROPERTIES LABELS "${label}")
endfunction()

# tidemark_test(name SOURCES a_test.cpp ... DEPENDS ... LABELS unit [ONE_PROCESS suite ...]): one binary, each of its suites known
# to CTest. Each file is in a namespace of its own, since many are compiled together. ONE_PROCESS names suites that share what
# they compute: CTest knows them as the first of them.
function(tidemark_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LABELS;ONE_PROCESS" ${ARGN})
  add_executable(${name}_test ${ARG_SOURCES})
  target_link_libraries(${name}_test PRIVATE tidemark_options fmt::fmt ${ARG_DEPENDS} GTest::gtest_main)
  target_compile_definitions(${name}_test PRIVATE TIDEMARK_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_compile_options(${name}_test PRIVATE ${tidemark_test_options})
  if(TIDEMARK_SANITIZE MATCHES "address")
    # Of a test's own variables: a seventh of what its compilation takes.
    target_compile_options(${name}_test PRIVATE -fno-sanitize-address-use-after-scope)
  endif()
  tidemark_precompile(${name}_test tidemark_often_in_tests)
  tidemark_together(${name}_test)
  set(suites ${CMAKE_CURRENT_BINARY_DIR}/${name}_suites.cmake)
  add_custom_command(TARGET ${name}_test POST_BUILD BYPRODUCTS ${suites}
                     COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:${name}_test> -D LABEL=${ARG_LABELS} -D FILE=${suites}
                             "-DONE_PROCESS=${ARG_ONE_PROCESS}"
                             -D ONLY_WITH_ALL=${tidemark_only_with_all} -P ${CMAKE_SOURCE_DIR}/cmake/suites.cmake VERBATIM)
  set_property(TARGET ${name}_test APPEND PROPERTY LINK_DEPENDS ${tidemark_only_with_all} ${CMAKE_SOURCE_DIR}/cmake/suites.cmake)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${name}_include.cmake
       "if(EXISTS \"${suites}\")\n  include(\"${suites}\")\nelse()\n  add_test(${name}_test_NOT_BUILT ${name}_test_NOT_BUILT)\n"
       "  set_tests_properties(${name}_test_NOT_BUILT PROPERTIES LABELS ${ARG_LABELS})\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}_include.cmake)
  if(TARGET ${ARG_LABELS}_tests)
    add_dependencies(${ARG_LABELS}_tests ${name}_test)
  endif()
  if(ARG_LABELS STREQUAL "unit")
    set_target_properties(${name}_test PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# Who may include whom is a test as well.
function(tidemark_include_check)
  add_test(NAME IncludeDirections.Hold COMMAND ${CMAKE_SOURCE_DIR}/scripts/check_includes)
  add_test(NAME IncludeDirections.ViolationsAreCaught COMMAND ${CMAKE_SOURCE_DIR}/scripts/check_includes --self-test)
  set_tests_properties(IncludeDirections.Hold IncludeDirections.ViolationsAreCaught PROPERTIES LABELS unit)
endfunction()

# tidemark_bench(name SOURCES a_bench.cpp ... DEPENDS ...)
function(tidemark_bench name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name}_bench ${ARG_SOURCES})
  target_link_libraries(${name}_bench PRIVATE tidemark_options ${ARG_DEPENDS} benchmark::benchmark_main)
  target_compile_definitions(${name}_bench PRIVATE TIDEMARK_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
endfunction()

function(tidemark_summary)
  message(STATUS "tidemark ${PROJECT_VERSION}: ${CMAKE_BUILD_TYPE}, ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
  message(STATUS "  tests ${TIDEMARK_TESTS}, benchmarks ${TIDEMARK_BENCHMARKS}, sanitizers '${TIDEMARK_SANITIZE}'")
  find_package(MPI COMPONENTS C QUIET)
  if(MPI_C_FOUND)
    message(STATUS "  MPI ${MPI_C_VERSION}: found; ${MPIEXEC_EXECUTABLE} starts the ranks of tidemark validate")
  else()
    message(STATUS "  MPI: not found; validate cannot run")
  endif()
  if(TIDEMARK_CUDA_FOUND)
    message(STATUS "  CUDA ${CUDAToolkit_VERSION} and NCCL: tidemark_gpu runs programs on GPUs")
  else()
    message(STATUS "  CUDA or NCCL: not found; programs do not run on GPUs")
  endif()
endfunction()
