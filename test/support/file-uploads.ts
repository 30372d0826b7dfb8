import { expect } from "bun:test";
import { expectError } from "./error-envelope.ts";
import { type FilesGateway, fileBooks } from "./files-gateway.ts";

/** Lines as the purposes fine-tune and batch want them. */
export const CHAT = `${JSON.stringify({ messages: [{ role: "user", content: "hé" }] })}\n`;
export const BATCH = `${JSON.stringify({
  custom_id: "1",
  method: "POST",
  url: "/v1/chat/completions",
  body: { model: "sandbox/chat", messages: [] },
})}\n`;

export const fileOf = (content: string | Uint8Array, name = "file.bin"): File =>
  new File([content as BlobPart], name);

/** Refused, and nothing of it is left. */
export async function expectRefused(
  gateway: FilesGateway,
  send: () => Promise<Response>,
  status: number,
  code: string,
) {
  const before = { stored: await gateway.countStored(), ...(await fileBooks(gateway)) };
  const { error } = await expectError(await send(), status, code);
  expect({ stored: await gateway.countStored(), ...(await fileBooks(gateway)) }).toEqual(before);
  return error;
}
