// Checks a speedscope file by the JSON schema that npm's speedscope comes with.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(`${process.cwd()}/`);
const Ajv = require("ajv");
const schema = JSON.parse(readFileSync(process.argv[2], "utf8"));
const file = JSON.parse(readFileSync(process.argv[3], "utf8"));
const ajv = new Ajv({ strict: false, validateSchema: false });
delete schema.$schema;
const validate = ajv.compile(schema);
if (!validate(file)) {
  console.error(validate.errors);
  process.exit(1);
}
const [p] = file.profiles;
if (p.samples.length !== p.weights.length) throw new Error("as many samples as weights are needed");
const sum = p.weights.reduce((a, b) => a + b, 0);
if (sum !== p.endValue) throw new Error(`weights add up to ${sum}, not ${p.endValue}`);
for (const s of p.samples) for (const f of s) if (!file.shared.frames[f]) throw new Error(`there is no frame ${f}`);
console.log(`cpu/nanoseconds ${sum}`);
