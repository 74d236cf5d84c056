// SPDX-License-Identifier: MIT
// Objects to JSON and back, a Map that churns, buffers that come and go; prints hashes of the results.
'use strict';

const { createHash } = require('crypto');
const { deflateSync, inflateSync } = require('zlib');

let state = 12345;
function next() {
  state = (Math.imul(state, 1103515245) + 12345) >>> 0;
  return state >>> 4;
}


function json() {
  const sum = createHash('sha256');
  for (let round = 0; round < 10; round++) {
    const rows = [];
    for (let i = 0; i < 20000; i++)
      rows.push({ id: i, name: 'row ' + next(), tags: [next() % 7, next() % 11], more: { on: i % 2 === 0 } });
    const text = JSON.stringify(rows);
    const again = JSON.stringify(JSON.parse(text));
    if (again !== text)
      throw new Error('JSON did not survive');
    sum.update(text);
  }
  return sum.digest('hex');
}

function map() {
  const live = new Map();
  for (let i = 0; i < 1000000; i++) {
    const key = 'key ' + next() % 100000;
    if (i % 3 === 2)
      live.delete(key);
    else
      live.set(key, { i, list: [i, i + 1] });
  }
  let sum = 0;
  for (const [key, value] of live)
    sum = (sum * 31 + key.length + value.i + value.list[1]) % 1000000007;
  return live.size + ' ' + sum;
}

function buffers() {
  const sum = createHash('sha256');
  const kept = [];
  for (let i = 0; i < 2000; i++) {
    const buffer = Buffer.alloc(1 + next() % 65536, i & 255);
    const back = inflateSync(deflateSync(buffer, { level: 1 }));
    if (!back.equals(buffer))
      throw new Error('zlib did not survive');
    kept[next() % 200] = back;
  }
  for (const buffer of kept)
    sum.update(buffer || 'none');
  return sum.digest('hex');
}

console.log('json', json());
console.log('map', map());
console.log('buffers', buffers());
