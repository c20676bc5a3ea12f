# Packages, by CPack: `cmake --build build/release --target package` writes into build/release/packages
#   tidemark-VERSION-SYSTEM-MACHINE.tar.gz   relocatable; its program runs with glibc 2.28 or later, and has no MPI (cmake/portable)
#   tidemark_VERSION_MACHINE.deb             the program; the libraries are Debian's
#   libtidemark-dev_VERSION_MACHINE.deb      the library for find_package(tidemark)
# Components: program, development. scripts/wheel makes wheels of the first.

# Under which licences.
include(GNUInstallDirs)
set(doc ${CMAKE_INSTALL_DATADIR}/doc)
install(FILES ${CMAKE_SOURCE_DIR}/cmake/copyright DESTINATION ${doc}/tidemark COMPONENT program)
install(FILES ${CMAKE_SOURCE_DIR}/scenarios/report/page/echarts/LICENSE-d3
              ${CMAKE_SOURCE_DIR}/scenarios/report/page/echarts/NOTICE
        DESTINATION ${doc}/tidemark/echarts COMPONENT program)
install(FILES ${CMAKE_SOURCE_DIR}/cmake/copyright DESTINATION ${doc}/libtidemark-dev COMPONENT development)

set(CPACK_PACKAGE_VENDOR "Tidemark")
set(CPACK_PACKAGE_CONTACT "Tidemark's maintainers <maintainers@tidemark.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_PACKAGE_DESCRIPTION "Will a training job fit, on every rank, at every moment of the step? Tidemark reads a model's
 configuration, a layout and a cluster, writes the program that each rank's host thread would run, plays
 it through an exact emulation of PyTorch's caching allocator, and runs it on a simulated clock.")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_GENERATOR DEB)
if(TIDEMARK_PORTABLE)
  list(PREPEND CPACK_GENERATOR TGZ)
endif()
set(CPACK_STRIP_FILES ON)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_SOURCE_DIR}/cmake/package_components.cmake)

set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
string(TOLOWER ${CMAKE_SYSTEM_NAME} system)
set(CPACK_PACKAGE_FILE_NAME tidemark-${PROJECT_VERSION}-${system}-${CMAKE_SYSTEM_PROCESSOR})

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME tidemark)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
# What the program loads by itself (kernels/math/engine/blas.cpp) is not among what it is linked with.
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS libopenblas0)
# mpirun for validate, rsvg-convert for figures as PNG.
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "openmpi-bin, librsvg2-bin, bash-completion")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libtidemark-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "tidemark (= ${PROJECT_VERSION}), libfmt-dev, libtbb-dev, zlib1g-dev, libyaml-cpp-dev")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "This package has the program, its models, clusters and examples.")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "This package has the C++ library and its headers.")
include(CPack)
