// Reads a profile with npm's pprof-format and prints the sum of each sample type.
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { createRequire } from "node:module";

const require = createRequire(`${process.cwd()}/`);
const { Profile } = require("pprof-format");
const p = Profile.decode(gunzipSync(readFileSync(process.argv[2])));
const text = (i) => p.stringTable.strings[Number(i)];
const sums = p.sampleType.map(() => 0n);
for (const s of p.sample) s.value.forEach((v, i) => { sums[i] += BigInt(v); });
p.sampleType.forEach((t, i) => console.log(`${text(t.type)}/${text(t.unit)} ${sums[i]}`));
