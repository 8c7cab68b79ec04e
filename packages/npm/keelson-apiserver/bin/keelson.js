#!/usr/bin/env node
// Runs the program of this platform in the place of this script.
import { spawn } from "node:child_process";
import { constants } from "node:os";
import { findProgram } from "../program.js";

let program;
try {
  program = findProgram();
} catch (error) {
  console.error(error.message);
  process.exit(1);
}
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// A terminal sends Ctrl-C to both: this script waits for the program, which decides when to end.
process.on("SIGINT", () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  console.error(`keelson: ${program}: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  process.exit(code ?? 128 + constants.signals[signal]);
});
