/** The lines of a log that are kept: the newest ones, with a limit on their number and length. */

export const LINES_MAX = 50_000;
const LINE_CHARACTERS_MAX = 10_000;

export class LogBuffer {
  constructor(max = LINES_MAX) {
    this.max = max;
    this.lines = [];
    this.dropped = 0;
    this.filter = '';
    this.view = this.lines;
  }

  push(line) {
    const kept = line.length > LINE_CHARACTERS_MAX ? `${line.slice(0, LINE_CHARACTERS_MAX)}…` : line;
    this.lines.push(kept);
    if (this.filter && kept.toLowerCase().includes(this.filter)) this.view.push(kept);
    // Dropped in large pieces: removing one line from the front moves all others.
    if (this.lines.length > this.max * 1.1) {
      const surplus = this.lines.length - this.max;
      this.lines.splice(0, surplus);
      this.dropped += surplus;
      this.setFilter(this.filter);
    }
  }

  setFilter(text) {
    this.filter = text.toLowerCase();
    this.view = this.filter
      ? this.lines.filter((line) => line.toLowerCase().includes(this.filter)) : this.lines;
  }
}
