import "../support/preload.ts";
import { fileURLToPath } from "node:url";
import { recordExamples } from "./recorded-examples.ts";

/*
 * Writes the examples of the OpenAPI document. Run it by hand when answers have changed:
 *
 *   bun test/http/record-examples.ts
 */

const path = fileURLToPath(new URL("../../src/main/openapi-examples.json", import.meta.url));
const examples = await recordExamples();
await Bun.write(path, `${JSON.stringify(examples, null, 2)}\n`);
console.log(`${Object.keys(examples).length} operations in ${path}`);
process.exit();
