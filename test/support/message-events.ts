type Fields = Record<string, unknown>;

/** The events of a stream of the Messages API; throws where a frame is not of its form. */
export function messageEvents(text: string): Fields[] {
  const frames = text.split("\n\n").filter((frame) => frame.trim() !== "");
  return frames.map((frame) => {
    const [name, data, ...more] = frame.split("\n");
    const event = JSON.parse(data!.replace(/^data: /, "")) as Fields;
    if (more.length > 0 || name !== `event: ${event.type}`) throw new Error(`no event: ${frame}`);
    return event;
  });
}
