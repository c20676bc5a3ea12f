"use strict";
// The page works without this: it asks at every change, and keeps answers beside each other.
(function () {
  var form = document.getElementById("job"), answer = document.getElementById("answer");
  var busy = document.getElementById("busy"), advice = document.getElementById("advice");
  var near = document.getElementById("near"), kept = document.getElementById("kept");
  var waiting = null, asking = null, looking = 0;

  function said() {
    var out = new URLSearchParams();
    new FormData(form).forEach(function (value, name) {
      if (typeof value === "string" && value !== "") out.set(name, value);
    });
    if (!out.has("file")) out.delete("kind");
    return out;
  }

  // As a form sends it: a text may be longer than what fits into a query.
  function body() {
    var out = new FormData();
    said().forEach(function (value, name) { out.append(name, value); });
    return out;
  }

  function verdict() { return answer.querySelector("[data-verdict]"); }

  function cell(text, head) {
    var made = document.createElement(head ? "th" : "td");
    if (head) made.scope = "row";
    made.textContent = text;
    return made;
  }

  // Which fields an answer is about, and why they do not go.
  function mark() {
    form.querySelectorAll("[aria-invalid]").forEach(function (field) { field.removeAttribute("aria-invalid"); });
    form.querySelectorAll(".why").forEach(function (why) {
      if (why.dataset.usual === undefined) why.dataset.usual = why.textContent;
      why.textContent = why.dataset.usual;
    });
    answer.querySelectorAll("[data-fields]").forEach(function (problem) {
      problem.dataset.fields.split(" ").forEach(function (name) {
        var field = name && document.getElementById("f-" + name), why = document.getElementById("f-" + name + "-why");
        if (!field) return;
        field.setAttribute("aria-invalid", "true");
        if (why) why.textContent = problem.textContent;
      });
    });
    document.getElementById("more").hidden = !verdict() || verdict().dataset.verdict === "wrong";
  }

  function ask() {
    var question = said(), link = new URLSearchParams(question);
    link.delete("file");
    link.delete("kind");
    if (asking) asking.abort();
    asking = new AbortController();
    busy.textContent = "asking";
    fetch("/answer", { method: "POST", body: body(), signal: asking.signal }).then(function (reply) {
      return reply.text();
    }).then(function (html) {
      answer.innerHTML = html;
      advice.textContent = "";
      busy.textContent = "";
      document.getElementById("link").href = "/?" + link;
      if (!question.has("file")) history.replaceState(null, "", "/?" + link);
      mark();
      looking = 12;
      look();
    }).catch(function (error) {
      if (error.name !== "AbortError") busy.textContent = "Tidemark does not answer: it may have ended";
    });
  }

  function soon() {
    clearTimeout(waiting);
    waiting = setTimeout(ask, 120);
  }

  // What neighbours of the question come to, as far as they have been computed.
  function look() {
    fetch("/near", { method: "POST", body: body() }).then(function (reply) { return reply.json(); }).then(function (all) {
      var body = near.querySelector("tbody");
      body.textContent = "";
      all.known.forEach(function (one) {
        var row = document.createElement("tr"), change = cell("", true), to = document.createElement("a");
        to.href = "/?" + one.query;
        to.textContent = one.change;
        change.appendChild(to);
        row.append(change, cell(one.verdict), cell(one.required), cell(one.step));
        body.appendChild(row);
        var field = form.elements[one.field];
        if (field && field.tagName === "SELECT")
          Array.prototype.forEach.call(field.options, function (option) {
            if (option.value !== one.value) return;
            option.disabled = one.verdict === "not possible";
            option.title = one.verdict === "not possible" ? one.why : "";
          });
      });
      near.hidden = all.known.length === 0;
      if (all.left > 0 && --looking > 0) setTimeout(look, 700);
    }).catch(function () {});
  }

  function keep() {
    var now = verdict();
    if (!now) return;
    var row = document.createElement("tr"), question = cell("", true), to = document.createElement("a");
    var remove = document.createElement("button"), last = document.createElement("td");
    to.href = "/?" + now.dataset.query;
    to.textContent = now.dataset.question;
    question.appendChild(to);
    remove.type = "button";
    remove.textContent = "×";
    remove.setAttribute("aria-label", "remove this row");
    remove.addEventListener("click", function () {
      row.remove();
      kept.hidden = kept.querySelectorAll("tbody tr").length === 0;
    });
    last.appendChild(remove);
    row.append(question, cell(now.dataset.verdict), cell(now.dataset.required), cell(now.dataset.step), cell(now.dataset.throughput), last);
    kept.querySelector("tbody").appendChild(row);
    kept.hidden = false;
  }

  form.addEventListener("input", soon);
  form.addEventListener("submit", function (event) {
    event.preventDefault();
    ask();
  });
  document.getElementById("keep").addEventListener("click", keep);
  document.getElementById("advise").addEventListener("click", function () {
    busy.textContent = "trying changes";
    fetch("/advise", { method: "POST", body: body() }).then(function (reply) { return reply.text(); }).then(function (html) {
      advice.innerHTML = html;
      busy.textContent = "";
    });
  });
  document.addEventListener("click", function (event) {
    var from = event.target.dataset && event.target.dataset.copy;
    if (!from) return;
    navigator.clipboard.writeText(document.getElementById(from).textContent).then(function () {
      event.target.textContent = "Copied";
    });
  });
  var upload = document.getElementById("f-upload");
  upload.hidden = false;
  upload.addEventListener("change", function () {
    var file = upload.files[0], kind = document.getElementById("f-kind");
    if (!file) return;
    Array.prototype.forEach.call(kind.options, function (option) {
      if (file.name.endsWith(option.value) || (option.value === ".yaml" && file.name.endsWith(".yml"))) kind.value = option.value;
    });
    file.text().then(function (text) {
      document.getElementById("f-file").value = text;
      soon();
    });
  });
  mark();
  if (verdict()) {
    looking = 12;
    look();
  }
})();
