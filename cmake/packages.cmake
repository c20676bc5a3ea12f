# Packages, by CPack: `cmake --build build/release --target package` writes into build/release/packages
#   tidemark-VERSION-SYSTEM-MACHINE.tar.gz   relocatable; brings the shared libraries it needs, but for glibc's
#   tidemark_VERSION_MACHINE.deb             the program; the libraries are Debian's
#   libtidemark-dev_VERSION_MACHINE.deb      the library for find_package(tidemark)
# Components: program, libraries (of the tarball alone), development.

# What the tarball's program finds beside itself. Nothing is there of the others.
set_target_properties(tidemark PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/tidemark")
# DT_RPATH, which counts for what those libraries need in turn, as DT_RUNPATH does not.
target_link_options(tidemark PRIVATE LINKER:--disable-new-dtags)
set(tidemark_libraries_script ${CMAKE_BINARY_DIR}/install_libraries.cmake)
configure_file(${CMAKE_SOURCE_DIR}/cmake/install_libraries.cmake.in ${tidemark_libraries_script} @ONLY)
install(SCRIPT ${tidemark_libraries_script} COMPONENT libraries EXCLUDE_FROM_ALL)

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
set(CPACK_GENERATOR TGZ DEB)
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
