/* Versions of torch and triton, from packages that the test makes. */
#include <criterion/criterion.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/worker/devices.h"
#include "common/base/file.h"

static char *folder;

static char *put(const char *path, const char *text, unsigned mode) {
  struct error error;
  char *file = xasprintf("%s/%s", folder, path);
  cleanup_free char *parent = xstrdup(file);
  *strrchr(parent, '/') = '\0';
  cr_assert(folder_make(parent, 0700, &error), "%s", error.message);
  cr_assert(file_write_atomically(file, text, strlen(text), mode, &error), "%s", error.message);
  return file;
}

static void packages_make(void) {
  char path[] = "/tmp/wavetune-test-XXXXXX";
  folder = xstrdup(mkdtemp(path));
  setenv("PYTHONPATH", folder, 1);
}

static void packages_end(void) {
  struct error error;
  cr_assert(folder_remove(folder, &error), "%s", error.message);
  free(folder);
}
TestSuite(python_versions, .init = packages_make, .fini = packages_end);

Test(python_versions, are_read_without_importing_the_packages) {
  struct error error = {0};
  cleanup_python_versions struct python_versions versions = {0};
  free(put("torch/__init__.py", "raise SystemExit('imported')\n", 0600));
  free(put("torch/version.py",
           "__version__ = '2.9.0+rocm6.4'\nhip: Optional[str] = '6.4.43484-123eb5128'\n", 0600));
  free(put("triton/__init__.py",
           "\"\"\"isort:skip_file\"\"\"\n__version__ = '3.6.0'\nraise SystemExit('imported')\n",
           0600));
  cr_assert(python_versions_read("/usr/bin/python3", &versions, &error), "%s", error.message);
  cr_expect_str_eq(versions.torch, "2.9.0+rocm6.4");
  cr_expect_str_eq(versions.torch_hip, "6.4.43484-123eb5128");
  cr_expect_str_eq(versions.triton, "3.6.0");
}

Test(python_versions, what_is_not_installed_is_not_stated) {
  struct error error = {0};
  cleanup_python_versions struct python_versions versions = {0};
  free(put("triton/__init__.py", "version = 1\n", 0600));
  free(put("torch/version.py", "__version__ = '2.9.0'\nhip = None\n", 0600));
  free(put("torch/__init__.py", "", 0600));
  cr_assert(python_versions_read("python3", &versions, &error), "%s", error.message);
  cr_expect_str_eq(versions.torch, "2.9.0");
  cr_expect_null(versions.torch_hip);
  cr_expect_null(versions.triton);
}

Test(python_versions, an_interpreter_that_does_not_exist_is_refused) {
  struct error error = {0};
  struct python_versions versions;
  cr_expect_not(python_versions_read("python-of-nobody", &versions, &error));
  cr_expect_str_eq(
      error.message,
      "there is no `python-of-nobody` in $PATH; give the path of the Python interpreter");
  cr_expect_not(python_versions_read("/nonexistent/python3", &versions, &error));
  cr_expect_str_eq(error.message, "cannot run /nonexistent/python3: No such file or directory");
}

Test(python_versions, a_program_that_is_no_python_is_refused) {
  struct error error = {0};
  struct python_versions versions;
  cleanup_free char *loud = put("loud", "#!/bin/sh\necho hello\n", 0700);
  cleanup_free char *failing = put("failing", "#!/bin/sh\necho no >&2\nexit 3\n", 0700);
  cr_expect_not(python_versions_read(loud, &versions, &error));
  cr_expect(strstr(error.message, "did not report its torch and triton: hello"), "%s",
            error.message);
  cr_expect_not(python_versions_read(failing, &versions, &error));
  cr_expect(strstr(error.message, "cannot report its torch and triton: no"), "%s", error.message);
}
