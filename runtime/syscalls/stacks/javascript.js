'use strict';
/* Node runs this module before a program that is recorded (preload.c), in each of its threads. It reports which functions of the
 * program are about to make a system call: the recorder answers access(2) of a path that begins with REPORT, so that the
 * kernel never sees it. A call of the thread itself is the next one; one that another thread will make (an asynchronous one)
 * is named by what it concerns.
 *
 * Node's functions get what makes system calls from an object, by name. Reading a name of it runs `noticed` here, in the
 * stack of the reader, and hands out what was there. So nothing of the program changes: no function, no result and no stack of
 * an error. Whatever fails here ends the reports. */
(() => {
  const REPORT = '/\u0001crashcheck/';
  const ALL = 7; // R_OK | W_OK | X_OK: what the recorder's filter stops at
  const DEEPEST = 32, LONGEST = 3500; // frames; characters of a report. A path has room for 4095 bytes
  const CHANGES = 0o1000 | 0o100; // O_TRUNC | O_CREAT
  // By the name in the object: the letter of the call for the recorder (javascript.c; * is any), which argument is
  // its path or, where `fd` is set, its descriptor, and which are the flags that show whether an open changes anything. A `job`
  // is made with `new`, and makes its calls later.
  const CALLS = {
    open: { letter: 'o', key: 0, flags: 1 }, openFileHandle: { letter: 'o', key: 0, flags: 1 },
    writeBuffer: { letter: 'w', key: 0, fd: true }, writeBuffers: { letter: 'w', key: 0, fd: true },
    writeString: { letter: 'w', key: 0, fd: true }, ftruncate: { letter: 't', key: 0, fd: true },
    fsync: { letter: 's', key: 0, fd: true }, fdatasync: { letter: 's', key: 0, fd: true },
    rename: { letter: 'r', key: 0 }, unlink: { letter: 'u', key: 0 }, rmdir: { letter: 'd', key: 0 },
    mkdir: { letter: 'm', key: 0 }, link: { letter: 'l', key: 0 }, symlink: { letter: 'y', key: 0 },
    copyFile: { letter: 'c', key: 1 }, writeFileUtf8: { letter: '*' }, rmSync: { letter: '*' }, mkdtemp: { letter: '*' },
    cpSyncCopyDir: { letter: '*' }, cpSyncOverrideFile: { letter: '*' },
    WriteFileJob: { letter: 'c', key: 0, job: true }, // from Node 26 on: an object that opens, writes and closes
  };

  // Of connections: they send a message at once. (A datagram is sent later, when the name of its target is known.)
  const SENDS = ['writeBuffer', 'writev', 'writeUtf8String', 'writeAsciiString', 'writeLatin1String', 'writeUcs2String'];

  /* The environment as the user gave it. */
  const given = process.env.NODE_OPTIONS;
  const ours = given === undefined ? -1 : given.lastIndexOf('--require="');
  if (ours >= 0 && given.slice(ours).indexOf('javascript.js') >= 0) {
    if (ours === 0) delete process.env.NODE_OPTIONS;
    else process.env.NODE_OPTIONS = given.slice(0, ours - 1);
  }
  delete require.cache[__filename];

  const { accessSync } = require('fs');
  const { findSourceMap } = require('module');
  const { defineProperty, prototype: { hasOwnProperty } } = Object;
  const { apply, construct } = Reflect, { imul } = Math, bytes = Buffer.from, LimitedError = Error;
  const capture = Error.captureStackTrace, decode = decodeURIComponent;
  const keepsLines = Boolean(process.features && process.features.typescript);
  let broken = false, within = false;
  let latest = {}; // the stack that was reported last for a letter: until there is another one, the recorder keeps it
  let creator = ''; // the stack that created the stream which Node is about to open

  /* The stack of the function that reads a name, as V8 has it, innermost first. */
  function sites(reader, depth) {
    const limit = LimitedError.stackTraceLimit, had = apply(hasOwnProperty, LimitedError, ['prepareStackTrace']);
    const prepare = LimitedError.prepareStackTrace, holder = {};
    LimitedError.stackTraceLimit = depth;
    LimitedError.prepareStackTrace = (error, frames) => frames;
    try {
      capture(holder, reader);
      return holder.stack;
    } finally {
      LimitedError.stackTraceLimit = limit;
      if (had) LimitedError.prepareStackTrace = prepare;
      else delete LimitedError.prepareStackTrace;
    }
  }

  function isMapped() { // to ask for a map takes as long as all the rest
    return findSourceMap && (process.sourceMapsEnabled || process.execArgv.includes('--enable-source-maps'));
  }

  /* Where a frame is in the source: [line, column], or nothing where another line would be shown. */
  function position(site, file) {
    const line = site.getLineNumber() || 0, column = site.getColumnNumber() || 0;
    const map = isMapped() ? findSourceMap(file) : undefined;
    if (map && line) {
      const found = map.findEntry(line - 1, column - 1);
      return found && found.originalLine !== undefined ? [found.originalLine + 1, found.originalColumn + 1] : [0, 0];
    }
    return /\.[cm]?tsx?$/.test(file) && !keepsLines ? [0, 0] : [line, column];
  }

  /* The functions of the program, one per line: line, column, where the function begins, name, file. */
  function described(stack) {
    let text = '', depth = 0;
    for (let i = 0; i < stack.length && depth < DEEPEST; i++) {
      const site = stack[i];
      let file = site.getFileName();
      if (typeof file !== 'string' || !file || file.startsWith('node:') || /[\t\n]/.test(file)) continue;
      if (file.startsWith('file://')) file = decode(file.slice(7));
      const [line, column] = position(site, file);
      const begins = (site.getEnclosingLineNumber && site.getEnclosingLineNumber()) || 1;
      const name = site.getFunctionName() || '<anonymous>';
      const next = `${line} ${column} ${begins} ${/[\t\n]/.test(name) ? '<anonymous>' : name}\t${file}\n`;
      if (text.length + next.length > LONGEST) break;
      text += next;
      depth++;
    }
    return text;
  }

  function report(head, text) {
    within = true;
    try {
      accessSync(`${REPORT}${head}\n${text}`, ALL);
    } finally {
      within = false;
    }
  }

  /* A call that this thread makes now. */
  function reportOwn(letter, text) {
    if (latest[letter] === text) return;
    report(`s ${letter} 0`, text);
    if (letter === '*' || letter === 'c') latest = {}; // several calls, which end where the next report is
    else latest[letter] = text;
  }

  function breakOff() {
    broken = true;
    try {
      report('s x 0', '');
    } catch (error) {
      // then nothing is recorded any more
    }
  }

  /* FNV-1a of a path's bytes, as javascript.c has it. */
  function hashed(path) {
    const data = typeof path === 'string' ? bytes(path) : path;
    let hash = 0x811c9dc5;
    for (let i = 0; i < data.length; i++) hash = imul(hash ^ data[i], 0x01000193);
    return hash >>> 0;
  }

  function isAsynchronous(words) {
    for (let i = words.length - 1; i >= 0; i--) {
      const word = words[i];
      if (typeof word === 'symbol') return true; // kUsePromises
      if (word && typeof word === 'object' && word.constructor && word.constructor.name === 'FSReqCallback') return true;
    }
    return false;
  }

  /* Whether one of Node's functions opens a file to read it. */
  function isRead(stack) {
    const by = stack.length > 1 ? stack[1] : null;
    return by && /^node:/.test(by.getFileName() || '') && /^read/.test(by.getFunctionName() || '');
  }

  /* `name` of the object is read, to be called. */
  function noticed(call, original, reader) {
    if (broken || within) return original;
    try {
      if (call.letter === 'o' && isRead(sites(reader, 2))) return original;
      const stack = sites(reader, 2 * DEEPEST);
      const by = (stack.length && stack[0].getFunctionName()) || '';
      const text = described(stack) || (stack.length > 2 && stack[1].getFunctionName() === '_construct' ? creator : '');
      if (call.letter === '*' || by.endsWith('Sync')) {
        reportOwn(call.letter, text);
        return original;
      }
      if (call.job) {
        return function (...words) {
          try {
            report(`a ${call.letter} ${hashed(words[call.key])}`, text);
          } catch (error) {
            breakOff();
          }
          return construct(original, words);
        };
      }
      return function (...words) {
        try {
          if (!isAsynchronous(words)) reportOwn(call.letter, text);
          else if (call.flags === undefined || words[call.flags] & CHANGES)
            report(`a ${call.letter} ${call.fd ? words[call.key] : hashed(words[call.key])}`, text);
        } catch (error) {
          breakOff();
        }
        return apply(original, this, words);
      };
    } catch (error) {
      breakOff();
      return original;
    }
  }

  /* The functions that make a stream: what it does is its own, later, and not what the innermost one of them does. */
  function streamOf(text) {
    return text.replace(/^(\d+ \d+ \d+ )/, '$1stream made by ');
  }

  /* A stream opens its file later, when none of the program's functions is left: who creates it is who asks for that. Node
   * reads `_construct` when the stream is created, and again before it calls it. */
  function noticeStreams(prototype) {
    const creators = new WeakMap();
    let begin = prototype._construct;
    if (typeof begin !== 'function') return;
    const get = function () {
      if (!broken) {
        try {
          creator = creators.get(this) || streamOf(described(sites(get, 2 * DEEPEST)));
          creators.set(this, creator);
        } catch (error) {
          breakOff();
        }
      }
      return begin;
    };
    defineProperty(prototype, '_construct', { get, set: (value) => { begin = value; }, configurable: true, enumerable: true });
  }

  function sendsAreWanted() { // where files alone are recorded, their stacks would only take time
    try {
      report('s n 0', '');
      return true;
    } catch (error) {
      return false;
    }
  }

  /* A write before the connection is there is made later: who asked for it is who made Node read `_writeGeneric` first. */
  function noticeSends(sockets, connections) {
    const waiting = new WeakMap();
    let write = sockets._writeGeneric, sender = '';
    if (typeof write !== 'function') return;
    const get = function () {
      if (!broken) {
        try {
          const text = described(sites(get, 2 * DEEPEST));
          sender = text || waiting.get(this) || '';
          if (this.connecting) waiting.set(this, text);
          else waiting.delete(this);
        } catch (error) {
          breakOff();
        }
      }
      return write;
    };
    defineProperty(sockets, '_writeGeneric', { get, set: (value) => { write = value; }, configurable: true, enumerable: true });
    const handles = Object.getPrototypeOf(connections);
    for (const name of SENDS) {
      let original = handles[name];
      if (typeof original !== 'function') continue;
      const send = () => {
        try {
          if (!broken) reportOwn('n', sender);
        } catch (error) {
          breakOff();
        }
        return original;
      };
      defineProperty(handles, name, { get: send, set: (value) => { original = value; }, configurable: true, enumerable: true });
    }
  }

  /* What a program that a function starts does is called by that function. */
  function noticeStarts(starters) {
    let start = starters.spawn;
    if (typeof start !== 'function') return;
    const get = () => {
      try {
        if (!broken && !within) reportOwn('e', described(sites(get, 2 * DEEPEST)));
      } catch (error) {
        breakOff();
      }
      return start;
    };
    defineProperty(starters, 'spawn', { get, set: (value) => { start = value; }, configurable: true, enumerable: true });
  }

  const warned = process.noDeprecation;
  try {
    process.noDeprecation = true;
    const binding = process.binding('fs');
    for (const name of Object.keys(CALLS)) {
      const call = CALLS[name];
      let original = binding[name];
      if (typeof original !== 'function') continue;
      const get = () => noticed(call, original, get), set = (value) => { original = value; };
      defineProperty(binding, name, { get, set, configurable: true, enumerable: true });
    }
    noticeStreams(require('fs').WriteStream.prototype);
    const { Process } = process.binding('process_wrap');
    if (Process) noticeStarts(Process.prototype);
    noticeStarts(process.binding('spawn_sync'));
    const { TCP } = sendsAreWanted() ? process.binding('tcp_wrap') : {};
    if (TCP) noticeSends(require('net').Socket.prototype, TCP.prototype);
  } catch (error) {
    broken = true;
  } finally {
    if (warned === undefined) delete process.noDeprecation;
    else process.noDeprecation = warned;
  }
})();
