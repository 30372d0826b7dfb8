import { isFields } from "../../../lib/json.ts";
import {
  CustomCallWriter,
  FunctionCallWriter,
  HostedToolWriter,
  type ItemPlace,
  type ItemStatus,
  MessageWriter,
  type SendEvent,
} from "./item-writers.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Sends the events of an item of the output that is whole already, as if it were written now. */
export function itemEvents(item: Fields, index: number, send: SendEvent): void {
  const place: ItemPlace = { id: String(item.id), index, send };
  const write = WRITERS[String(item.type)];
  if (write !== undefined) write(place, item, statusOf(item));
  else if (item.type === "reasoning") sendReasoning(place, item);
  else sendTool(place, item);
}

const WRITERS: Readonly<
  Record<string, (place: ItemPlace, item: Fields, status: ItemStatus) => void>
> = {
  message(place, { content }, status) {
    const writer = new MessageWriter(place);
    for (const part of listOf(content)) {
      const { type, text, refusal, annotations, logprobs } = part;
      if (type === "refusal") writer.add("refusal", String(refusal));
      else writer.add("output_text", String(text), listOf(logprobs));
      if (listOf(annotations).length > 0) writer.annotate(listOf(annotations));
    }
    writer.end(status);
  },

  function_call(place, { call_id: callId, name, arguments: json }, status) {
    const writer = new FunctionCallWriter(place, { callId: String(callId), name: String(name) });
    writer.add(String(json));
    writer.end(status);
  },

  custom_tool_call(place, { call_id: callId, name, input }, status) {
    const writer = new CustomCallWriter(place, { callId: String(callId), name: String(name) });
    writer.add(JSON.stringify({ input }));
    writer.end(status);
  },
};

function sendTool(place: ItemPlace, { id: _, status, ...item }: Fields): void {
  const run = { ...item, type: String(item.type) };
  const writer = new HostedToolWriter(place, run);
  writer.note("in_progress", run);
  writer.note(status === "failed" ? "failed" : "completed", run);
  writer.end("completed");
}

function sendReasoning({ id, index, send }: ItemPlace, item: Fields): void {
  const { summary, content, encrypted_content: _, ...rest } = item;
  const members = `"item_id":${JSON.stringify(id)},"output_index":${index}`;
  const sendItem = (what: string, shown: Fields) =>
    send(`response.output_item.${what}`, `"output_index":${index},"item":${JSON.stringify(shown)}`);
  const sendParts = (parts: readonly Fields[], [part, text, number]: readonly string[]) => {
    for (const [at, whole] of parts.entries()) {
      const place = `${members},"${number}":${at}`;
      const said = JSON.stringify(whole.text);
      const empty = JSON.stringify({ ...whole, text: "" });
      send(`response.${part}.added`, `${place},"part":${empty}`);
      send(`response.${text}.delta`, `${place},"delta":${said}`);
      send(`response.${text}.done`, `${place},"text":${said}`);
      send(`response.${part}.done`, `${place},"part":${JSON.stringify(whole)}`);
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
