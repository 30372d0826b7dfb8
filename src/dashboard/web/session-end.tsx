import { useEffect, useState } from "preact/hooks";
import { call, type Session, session } from "./api.ts";
import { Button } from "./components/controls.tsx";
import { perform } from "./components/dialog.tsx";
import { Notice, Time } from "./components/display.tsx";

type SessionEnd = Pick<Session, "ends_at" | "expires_at">;

const MINUTE_MS = 60_000;
/** Time before the end of the session at which the viewer is warned, in milliseconds. */
const WARNING_MS = 5 * MINUTE_MS;

/**
 * Warns before the session ends. Use in another tab or on another page moves the end, so the gateway is asked for it
 * before the warning appears. The question does not count as use.
 */
export function SessionEndWarning() {
  const [end, setEnd] = useState<SessionEnd>(session.value!);
  const [isNear, setNear] = useState(false);
  useEffect(() => {
    const leftMs = Date.parse(end.ends_at) - Date.now();
    setNear(leftMs <= WARNING_MS);
    // During the warning the end can still move, in another tab.
    const waitMs = leftMs <= WARNING_MS ? MINUTE_MS : leftMs - WARNING_MS;
    const timer = setTimeout(async () => {
      const answer = call<SessionEnd>("GET", "session", { isUnattended: true });
      // A session that has ended leads to the sign-in. After another failure the next minute repeats the question.
      setEnd(await answer.catch(() => ({ ...end })));
    }, waitMs);
    return () => clearTimeout(timer);
  }, [end]);
  if (!isNear) return null;
  const isLast = end.ends_at === end.expires_at;
  return (
    <div class="session-end" role="status">
      <Notice tone="warn">
        Your session ends at <Time iso={end.ends_at} form="clock" />.{" "}
        {isLast ? (
          "Finish your work, then sign out and sign in again."
        ) : (
          <Button
            onClick={() =>
              void perform("Your session continues.", async () =>
                setEnd(await call("GET", "session")),
              )
            }
          >
            Stay signed in
          </Button>
        )}
      </Notice>
    </div>
  );
}
