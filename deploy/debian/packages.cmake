# The packages wavetune-server, wavetune-agent and wavetune, made by cpack of a build with -DWAVETUNE_PACKAGE=ON. Included by the
# top CMakeLists.txt. SOURCE_DATE_EPOCH sets every time in them, so that two builds of one commit are the same, byte for byte.
set(WAVETUNE_MAINTAINER "wavetune maintainers <maintainers@wavetune.example.org>" CACHE STRING
    "Who answers for the packages: NAME <ADDRESS>")
set(CPACK_PACKAGE_CONTACT "${WAVETUNE_MAINTAINER}")
string(TIMESTAMP DATE "%a, %d %b %Y %H:%M:%S +0000" UTC) # of SOURCE_DATE_EPOCH, if that is set

# Files that only a package has. dpkg keeps an administrator's changes of those in /etc, also when the package is removed.
foreach(component server agent client)
  set(package wavetune-${component})
  if(component STREQUAL "client")
    set(package wavetune)
  endif()
  set(PACKAGE ${package})
  set(control ${PROJECT_BINARY_DIR}/debian/${component})
  configure_file(deploy/debian/changelog.in ${control}/changelog @ONLY)
  execute_process(COMMAND gzip -9nf ${control}/changelog COMMAND_ERROR_IS_FATAL ANY)
  install(FILES deploy/debian/copyright ${control}/changelog.gz DESTINATION share/doc/${package} COMPONENT ${component})
  string(TOUPPER ${component} COMPONENT)
  set(CPACK_DEBIAN_${COMPONENT}_PACKAGE_NAME ${package})
  if(NOT component STREQUAL "client")
    set(UNIT ${component})
    set(extra)
    foreach(script postinst prerm postrm)
      configure_file(deploy/debian/${script}.in ${control}/${script} @ONLY FILE_PERMISSIONS OWNER_READ OWNER_WRITE
                     OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
      list(APPEND extra ${control}/${script})
    endforeach()
    file(WRITE ${control}/conffiles "/etc/wavetune/${component}.env\n")
    set(CPACK_DEBIAN_${COMPONENT}_PACKAGE_CONTROL_EXTRA "${extra};${control}/conffiles")
    install(FILES deploy/debian/${component}.env DESTINATION /etc/wavetune COMPONENT ${component}
            PERMISSIONS OWNER_READ OWNER_WRITE)
  endif()
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL server agent client)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_SET_DESTDIR ON) # the units name the programs' folder after the installation, and /etc is outside the prefix
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
    WORLD_EXECUTE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)

set(sysusers "systemd | systemd-standalone-sysusers | systemd-sysusers")
set(CPACK_COMPONENT_SERVER_DESCRIPTION "coordinator of a cluster that tunes GPU kernels
The server gives tuning work to agents, keeps what they measured in
PostgreSQL, decides winners and serves caches of tuned configs to
containers, all over HTTP.")
set(CPACK_DEBIAN_SERVER_PACKAGE_DEPENDS "${sysusers}")
set(CPACK_DEBIAN_SERVER_PACKAGE_RECOMMENDS "postgresql (>= 14), ca-certificates, wavetune")
set(CPACK_COMPONENT_AGENT_DESCRIPTION "measures GPU kernels on a node for wavetune-server
The agent pulls work from a wavetune server, compiles and measures
configs on the GPUs or the CPU of its node, and posts the samples. It
also tunes a kernel on one machine without a server.")
set(CPACK_DEBIAN_AGENT_PACKAGE_DEPENDS "${sysusers}, gcc | c-compiler, libc6-dev | libc-dev")
set(CPACK_DEBIAN_AGENT_PACKAGE_RECOMMENDS "ca-certificates")
set(CPACK_DEBIAN_AGENT_PACKAGE_SUGGESTS "clang-19, lld-19, wavetune")
set(CPACK_COMPONENT_CLIENT_DESCRIPTION "submits kernels to tune, publishes and fetches caches
The client of wavetune servers for pipelines, operators and entrypoints
of containers: it submits jobs, publishes releases to channels, and
fetches caches of tuned configs for Triton, vLLM and others.")
set(CPACK_DEBIAN_CLIENT_PACKAGE_RECOMMENDS "ca-certificates")
set(CPACK_DEBIAN_CLIENT_PACKAGE_SUGGESTS "python3")
include(CPack)
