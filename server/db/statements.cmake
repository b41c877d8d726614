# Makes C of files that are part of the program.
#
#   embed_text(OUT_SOURCE VARIABLE FILE)        `extern const char VARIABLE[]` is the file's text
#   embed_files(OUT_SOURCE VARIABLE HEADER FILE …)
#       VARIABLE[], as HEADER declares it, has name and text of each file; a name of NULL ends it
#   embed_statements(OUT_SOURCES FILE.sql …)    the statements in .sql files
#
# In a .sql file, a line "-- name: lease_grant" begins the statement lease_grant. The lines before the first such line, and
# every line that begins with "--", are comments. server/lease/lease.sql becomes server/lease/lease.sql.h in
# ${PROJECT_BINARY_DIR}/statements, which declares `extern const struct statement sql_lease_grant;`, and a .c file beside
# it. There a statement is one line, as logs have it.

# The text of a file as a C string, without the outer quotes.
function(read_quoted out file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} text)
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "\"" "\\\"" text "${text}")
  string(REPLACE "\n" "\\n\"\n\"" text "${text}")
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

function(embed_text out variable file)
  read_quoted(text ${file})
  set(source ${PROJECT_BINARY_DIR}/texts/${variable}.c)
  file(CONFIGURE OUTPUT ${source} @ONLY
       CONTENT "extern const char @variable@[];\nconst char @variable@[] = \"@text@\";\n")
  set(${out} ${source} PARENT_SCOPE)
endfunction()

function(embed_files out variable header)
  set(entries)
  foreach(file ${ARGN})
    get_filename_component(name ${file} NAME)
    read_quoted(text ${file})
    string(APPEND entries "    {\"${name}\", \"${text}\"},\n")
  endforeach()
  set(source ${PROJECT_BINARY_DIR}/texts/${variable}.c)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT
       "#include \"@header@\"\n\nconst struct embedded_file @variable@[] = {\n@entries@    {NULL, NULL},\n};\n")
  set(${out} ${source} PARENT_SCOPE)
endfunction()

function(embed_statements out)
  set(sources)
  foreach(file ${ARGN})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${file})
    file(READ ${file} rest)
    set(declarations)
    set(definitions)

    string(FIND "${rest}" "-- name: " start)
    if(start EQUAL -1)
      message(FATAL_ERROR "${path}: there is no line \"-- name: NAME\", with which a statement begins")
    endif()
    while(NOT start EQUAL -1)
      math(EXPR start "${start} + 9")
      string(SUBSTRING "${rest}" ${start} -1 rest)
      string(FIND "${rest}" "\n" end)
      string(SUBSTRING "${rest}" 0 ${end} name)
      if(NOT name MATCHES "^[a-z_0-9]+$")
        message(FATAL_ERROR "${path}: \"${name}\" is not a name of a statement: small letters, digits and _")
      endif()

      string(SUBSTRING "${rest}" ${end} -1 rest)
      string(FIND "${rest}" "-- name: " start)
      string(SUBSTRING "${rest}" 0 ${start} sql)
      string(REGEX REPLACE "\n *--[^\n]*" "" sql "${sql}")
      if(sql MATCHES " -- ")
        message(FATAL_ERROR "${path}: ${name}: a comment must have its line to itself")
      endif()
      string(REPLACE "\\" "\\\\" sql "${sql}")
      string(REPLACE "\"" "\\\"" sql "${sql}")
      string(REGEX REPLACE "[ \n]*\n *" " " sql "${sql}")
      string(STRIP "${sql}" sql)
      string(REGEX REPLACE ";$" "" sql "${sql}")
      string(APPEND declarations "extern const struct statement sql_${name};\n")
      string(APPEND definitions "const struct statement sql_${name} = {\"${name}\", \"${sql}\"};\n")
    endwhile()

    set(made ${PROJECT_BINARY_DIR}/statements/${path})
    file(CONFIGURE OUTPUT ${made}.h @ONLY CONTENT
         "/* The statements of @path@. */\n#pragma once\n#include \"server/db/db.h\"\n\n@declarations@")
    file(CONFIGURE OUTPUT ${made}.c @ONLY CONTENT "#include \"@path@.h\"\n\n@definitions@")
    list(APPEND sources ${made}.c)
  endforeach()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()
