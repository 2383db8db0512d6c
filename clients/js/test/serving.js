// A server of its own for a test: SEMA_BIN is the program, SEMA_ENGINE where the semaphores live.
import { spawn } from "node:child_process"
import { once } from "node:events"
import { createInterface } from "node:readline"

export class Serving {
  port = 0
  name = `js/${crypto.randomUUID()}`

  get url() {
    return `http://127.0.0.1:${this.port}`
  }

  /** Starts the server, where it was before. */
  async start() {
    this.process = spawn(process.env.SEMA_BIN, ["serve", "--url", process.env.SEMA_ENGINE, "--listen", `127.0.0.1:${this.port}`], { stdio: ["ignore", "ignore", "pipe"] })
    for await (const line of createInterface(this.process.stderr)) {
      const found = /url=http:\/\/127\.0\.0\.1:(\d+)/.exec(line)
      if (found) {
        this.port = Number(found[1])
        this.process.stderr.resume()
        return this
      }
    }
    throw new Error("the server did not start")
  }

  async kill() {
    const ended = once(this.process, "exit")
    if (this.process.exitCode === null && this.process.signalCode === null) {
      this.process.kill("SIGKILL")
      await ended
    }
  }

  /** Nothing is answered, and no connection breaks, until cont. */
  stop() {
    this.process.kill("SIGSTOP")
  }

  cont() {
    this.process.kill("SIGCONT")
  }

  /** Returns once so many callers wait. */
  async waiting(n) {
    for (;;) {
      const answer = await fetch(`${this.url}/v1/semaphores/${encodeURIComponent(this.name)}`)
      if ((await answer.json()).waiting === n) return
      await new Promise((done) => setTimeout(done, 20)) // a snapshot is asked for
    }
  }

  /** The names of all semaphores. */
  async names() {
    const answer = await fetch(`${this.url}/v1/semaphores?max=1000`)
    return (await answer.json()).semaphores.map(({ name }) => name)
  }

  async revoke(permit) {
    const answer = await fetch(`${this.url}/v1/semaphores/${encodeURIComponent(this.name)}/holders/${permit}/revoke`, { method: "POST" })
    if (answer.status !== 204) throw new Error(await answer.text())
  }
}
