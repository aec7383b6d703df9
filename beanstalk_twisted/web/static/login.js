// Logs a browser in and out.
import { post } from "./api.js";

const [form, fields, token, out, trouble] = ["form", "fields", "token", "out", "trouble"].map((id) => document.getElementById(id));

/** A wrong token may be compared only after a while: nothing is sent twice meanwhile. */
async function send(where, headers) {
  form.inert = true;
  try {
    await post(where, {}, headers);
    location.replace(`./${location.hash}`);
  } catch ({ message }) {
    [trouble.textContent, trouble.hidden, form.inert] = [message, false, false];
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  send("login", { Authorization: `Bearer ${token.value.trim()}` });
});
out.addEventListener("click", () => send("logout"));
// What is pressed before this line would be lost.
fields.disabled = false;
token.focus();
