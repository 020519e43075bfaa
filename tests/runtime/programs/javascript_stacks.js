'use strict';
// Each write is of the stack that the program sees itself: file, function and line of its own frames, innermost first.
const fs = require('fs');
const path = require('path');
const { Worker, isMainThread, workerData } = require('worker_threads');
const pool = isMainThread ? process.argv[2] : workerData;

function stack() {
  const prepare = Error.prepareStackTrace;
  Error.prepareStackTrace = (error, frames) => frames;
  const frames = new Error().stack.slice(1);
  Error.prepareStackTrace = prepare;
  const own = frames.filter((site) => site.getFileName() && !site.getFileName().startsWith('node:'));
  return JSON.stringify(own.map((site) => [site.getFileName(), site.getFunctionName() || '<anonymous>', site.getLineNumber()]));
}

const file = (name) => path.join(pool, name);

class Store {
  static save(name) { fs.writeFileSync(file(name), stack()); }
  append(fd) { fs.writeSync(fd, stack()); }
}

async function direct(handle) {
  await handle.write(stack());
}

async function promised() {
  const handle = await fs.promises.open(file('promised'), 'w');
  await direct(handle);
  await handle.close();
}

function called(done) {
  fs.open(file('called'), 'w', (error, fd) => fs.write(fd, stack(), () => fs.close(fd, done)));
}

function whole() {
  const text = stack(); return new Promise((done) => fs.writeFile(file('whole'), text, done));
}

function streamed() {
  const text = stack(), stream = fs.createWriteStream(file('streamed'));
  return new Promise((done) => stream.end(text, done));
}

if (!isMainThread) {
  Store.save('worker');
} else {
  Store.save('sync');
  const fd = fs.openSync(file('appended'), 'a');
  for (let i = 0; i < 2; i++) new Store().append(fd);
  promised()
    .then(() => new Promise(called))
    .then(whole)
    .then(streamed)
    .then(() => Promise.all([promised(), promised()]))
    .then(() => new Worker(__filename, { workerData: pool }));
}
