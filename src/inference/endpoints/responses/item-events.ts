import { isFields } from "../../../lib/json.ts";
import {
  CustomCallWriter,
  FunctionCallWriter,
  HostedToolWriter,
  type ItemStatus,
  type ItemTarget,
  MessageWriter,
  type SendEvent,
} from "./item-writers.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Sends the events of a complete output item, as a stream would. */
export function itemEvents(item: Fields, index: number, send: SendEvent): void {
  const target: ItemTarget = { id: String(item.id), index, send };
  const write = WRITERS[String(item.type)];
  if (write !== undefined) write(target, item, statusOf(item));
  else if (item.type === "reasoning") sendReasoning(target, item);
  else sendTool(target, item);
}

const WRITERS: Readonly<
  Record<string, (target: ItemTarget, item: Fields, status: ItemStatus) => void>
> = {
  message(target, { content }, status) {
    const writer = new MessageWriter(target);
    for (const part of listOf(content)) {
      const { type, text, refusal, annotations, logprobs } = part;
      if (type === "refusal") writer.add("refusal", String(refusal));
      else writer.add("output_text", String(text), listOf(logprobs));
      if (listOf(annotations).length > 0) writer.annotate(listOf(annotations));
    }
    writer.end(status);
  },

  function_call(target, { call_id: callId, name, arguments: json }, status) {
    const writer = new FunctionCallWriter(target, { callId: String(callId), name: String(name) });
    writer.add(String(json));
    writer.end(status);
  },

  custom_tool_call(target, { call_id: callId, name, input }, status) {
    const writer = new CustomCallWriter(target, { callId: String(callId), name: String(name) });
    writer.add(JSON.stringify({ input }));
    writer.end(status);
  },
};

function sendTool(target: ItemTarget, { id: _, status, ...item }: Fields): void {
  const run = { ...item, type: String(item.type) };
  const writer = new HostedToolWriter(target, run);
  writer.note("in_progress", run);
  writer.note(status === "failed" ? "failed" : "completed", run);
  writer.end("completed");
}

function sendReasoning({ id, index, send }: ItemTarget, item: Fields): void {
  const { summary, content, encrypted_content: _, ...rest } = item;
  const members = `"item_id":${JSON.stringify(id)},"output_index":${index}`;
  const sendItem = (what: string, shown: Fields) =>
    send(`response.output_item.${what}`, `"output_index":${index},"item":${JSON.stringify(shown)}`);
  const sendParts = (parts: readonly Fields[], [part, text, number]: readonly string[]) => {
    for (const [at, whole] of parts.entries()) {
      const position = `${members},"${number}":${at}`;
      const json = JSON.stringify(whole.text);
      const empty = JSON.stringify({ ...whole, text: "" });
      send(`response.${part}.added`, `${position},"part":${empty}`);
      send(`response.${text}.delta`, `${position},"delta":${json}`);
      send(`response.${text}.done`, `${position},"text":${json}`);
      send(`response.${part}.done`, `${position},"part":${JSON.stringify(whole)}`);
    }
  };
  sendItem("added", { ...rest, summary: [] });
  sendParts(listOf(summary), ["reasoning_summary_part", "reasoning_summary_text", "summary_index"]);
  sendParts(listOf(content), ["content_part", "reasoning", "content_index"]);
  sendItem("done", item);
}

function statusOf({ status }: Fields): ItemStatus {
  return status === "incomplete" ? "incomplete" : "completed";
}

function listOf(value: unknown): readonly Fields[] {
  return Array.isArray(value) ? value.filter(isFields) : [];
}
