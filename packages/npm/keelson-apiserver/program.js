import { createRequire } from "node:module";

const require = createRequire(import.meta.url);

/**
 * Returns the path of the program: that of the environment variable KEELSON_PROGRAM, else that of the
 * package of this platform.
 */
export function findProgram() {
  if (process.env.KEELSON_PROGRAM) {
    return process.env.KEELSON_PROGRAM;
  }
  const name = `keelson-apiserver-${process.platform}-${process.arch}`;
  try {
    return require.resolve(`${name}/bin/keelson`);
  } catch {
    throw new Error(
      `keelson-apiserver: the package ${name} is not installed. It is an optional dependency: there may ` +
        "be none for this platform, or optional dependencies were left out. KEELSON_PROGRAM can name a program.",
    );
  }
}
