import { useEffect, useState } from "preact/hooks";
import { Button } from "../components/controls.tsx";
import { Confirm, messageOf, toast } from "../components/dialog.tsx";
import { Time } from "../components/display.tsx";
import { restore } from "./conversation.ts";
import {
  clearHistory,
  deleteConversation,
  findConversation,
  historyFault,
  historyItems,
  loadHistory,
} from "./history.ts";

/** Earlier conversations, which only this browser has. */
export function HistoryPanel() {
  const [isClearing, setClearing] = useState(false);
  useEffect(() => void loadHistory(), []);
  const items = historyItems.value;
  const open = async (id: string) => {
    try {
      const stored = await findConversation(id);
      if (stored === undefined) toast("This conversation was deleted.", true);
      else restore(stored);
    } catch (error) {
      toast(messageOf(error), true);
    }
  };
  return (
    <details class="panel history">
      <summary>History</summary>
      <p class="hint">In this browser only. Signing out deletes it.</p>
      {historyFault.value && <p class="hint bad">{historyFault.value}</p>}
      {items.length === 0 && <p class="quiet">No conversations yet</p>}
      <ul class="plain">
        {items.map(({ id, title, savedAtMs }) => (
          <li key={id}>
            <Button variant="link" onClick={() => void open(id)}>
              {title}
            </Button>
            <span class="quiet">
              <Time iso={new Date(savedAtMs).toISOString()} />
              <Button
                variant="quiet"
                label={`Delete ${title}`}
                onClick={() =>
                  void deleteConversation(id).catch((error: unknown) =>
                    toast(messageOf(error), true),
                  )
                }
              >
                Delete
              </Button>
            </span>
          </li>
        ))}
      </ul>
      {items.length > 0 && <Button onClick={() => setClearing(true)}>Clear history</Button>}
      {isClearing && (
        <Confirm
          title="Clear history"
          action="Clear history"
          onClose={() => setClearing(false)}
          onConfirm={async () => {
            await clearHistory();
            setClearing(false);
          }}
        >
          All conversations of the playground are deleted from this browser.
        </Confirm>
      )}
    </details>
  );
}
