"use strict";
// The page works without this: it asks at every change, and keeps answers beside each other.
(function () {
  var form = document.getElementById("job"), answer = document.getElementById("answer");
  var busy = document.getElementById("busy"), advice = document.getElementById("advice");
  var near = document.getElementById("near"), kept = document.getElementById("kept");
  var waiting = null, asking = null, looking = 0, rows_kept = [];
  var pasted = ["file", "kind", "model_file", "cluster_file"];

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
    form.querySelectorAll("option").forEach(function (option) { option.disabled = false; });
    form.querySelectorAll(".why").forEach(function (why) {
      if (why.dataset.usual === undefined) why.dataset.usual = why.textContent;
      why.textContent = why.dataset.usual;
    });
    answer.querySelectorAll("[data-fields]").forEach(function (problem) {
      problem.dataset.fields.split(" ").forEach(function (name) {
        var field = name && document.getElementById("f-" + name), why = document.getElementById("f-" + name + "-why");
        if (!field) return;
        field.setAttribute("aria-invalid", "true");
        if (why) why.textContent = problem.dataset.why;
      });
    });
    document.getElementById("more").hidden = !verdict() || verdict().dataset.verdict === "wrong";
    document.getElementById("told").textContent = verdict() ? verdict().querySelector("h2").textContent : "";
  }

  // A link has the form's fields, and behind its # what was pasted, which a browser sends to nobody.
  function link_of(question) {
    var fields = new URLSearchParams(question), texts = new URLSearchParams();
    pasted.forEach(function (name) {
      if (fields.has(name)) texts.set(name, fields.get(name));
      fields.delete(name);
    });
    var text = texts.toString();
    return "/?" + fields + (text && text.length < 200000 ? "#" + text : "");
  }

  // The form says what a question says; what is pasted stays, unless `all` of it is in the question.
  function fill(question, all) {
    Array.prototype.forEach.call(form.elements, function (field) {
      if (!field.name || (!all && pasted.indexOf(field.name) >= 0)) return;
      if (field.type === "checkbox") field.checked = question.has(field.name);
      else if (question.has(field.name)) field.value = question.get(field.name);
      else if (field.tagName === "SELECT") field.selectedIndex = 0;
      else field.value = "";
    });
  }

  function ask() {
    var question = said();
    clearTimeout(waiting);
    if (asking) asking.abort();
    asking = new AbortController();
    busy.textContent = "asking";
    fetch("/answer", { method: "POST", body: body(), signal: asking.signal }).then(function (reply) {
      return reply.text();
    }).then(function (html) {
      answer.innerHTML = html;
      advice.textContent = "";
      busy.textContent = "";
      document.getElementById("link").href = link_of(question);
      history.replaceState(null, "", link_of(question));
      near.hidden = true;
      mark();
      looking = 400;
      look(question.toString());
    }).catch(function (error) {
      if (error.name !== "AbortError") busy.textContent = "Tidemark does not answer: it may have ended";
    });
  }

  // A choice is whole at once; a number may have more digits.
  function soon(event) {
    var at = event && event.target;
    clearTimeout(waiting);
    waiting = setTimeout(ask, at && (at.tagName === "SELECT" || at.type === "checkbox") ? 0 : 80);
  }

  // Why values of a field do not go, those with one reason together.
  function refuse(field, values) {
    var reasons = {}, why = document.getElementById("f-" + field.name + "-why");
    values.forEach(function (one) {
      (reasons[one.why] = reasons[one.why] || []).push(one.value || "none");
      if (field.tagName === "SELECT")
        Array.prototype.forEach.call(field.options, function (option) {
          if (option.value === one.value) option.disabled = true;
        });
    });
    if (!why || field.getAttribute("aria-invalid")) return;
    var said = Object.keys(reasons).map(function (reason) { return "not " + reasons[reason].join(", ") + ": " + reason; });
    why.textContent = (why.dataset.usual ? why.dataset.usual + "; " : "") + said.join("; ");
  }

  // What neighbours of the question come to, as far as they have been computed.
  function look(asked) {
    fetch("/near", { method: "POST", body: body() }).then(function (reply) { return reply.json(); }).then(function (all) {
      if (said().toString() !== asked) return;
      var rows = near.querySelector("tbody"), impossible = {};
      rows.textContent = "";
      all.known.forEach(function (one) {
        if (one.verdict === "not possible") {
          (impossible[one.field] = impossible[one.field] || []).push(one);
          return;
        }
        var row = document.createElement("tr"), change = cell("", true), to = document.createElement("a");
        to.href = "/?" + one.query;
        to.textContent = one.change;
        change.appendChild(to);
        row.append(change, cell(one.verdict), cell(one.required), cell(one.step));
        rows.appendChild(row);
      });
      if (verdict() && verdict().dataset.verdict !== "wrong")
        Object.keys(impossible).forEach(function (name) { refuse(form.elements[name], impossible[name]); });
      near.hidden = rows.children.length === 0;
      if (all.left > 0 && --looking > 0) setTimeout(function () { look(asked); }, 700);
    }).catch(function () {
      if (--looking > 0) setTimeout(function () { look(asked); }, 700);
    });
  }

  // Rows to compare: each says what differs between them.
  function show_kept() {
    var names = {}, rows = kept.querySelector("tbody"), all = rows_kept.map(function (one) { return new URLSearchParams(one.asked); });
    all.forEach(function (one) { one.forEach(function (value, name) { names[name] = true; }); });
    var differ = Object.keys(names).filter(function (name) {
      return all.some(function (one) { return one.get(name) !== all[0].get(name); });
    });
    rows.textContent = "";
    rows_kept.forEach(function (one, index) {
      var row = document.createElement("tr"), question = cell("", true), to = document.createElement("a");
      var remove = document.createElement("button"), last = document.createElement("td");
      to.href = link_of(all[index]);
      to.textContent = (differ.length ? differ : Object.keys(names)).map(function (name) {
        return pasted.indexOf(name) >= 0 ? "pasted " + name : name.replace(/_/g, " ") + " " + (all[index].get(name) || "usual");
      }).join(", ");
      to.title = one.question;
      to.dataset.kept = index;
      question.appendChild(to);
      remove.type = "button";
      remove.textContent = "×";
      remove.setAttribute("aria-label", "remove this row");
      remove.addEventListener("click", function () {
        rows_kept.splice(index, 1);
        show_kept();
      });
      last.appendChild(remove);
      row.append(question, cell(one.verdict), cell(one.required), cell(one.step), cell(one.throughput), last);
      rows.appendChild(row);
    });
    kept.hidden = rows_kept.length === 0;
    try { sessionStorage.setItem("kept", JSON.stringify(rows_kept)); } catch (full) { /* the table is still there */ }
  }

  function keep() {
    var now = verdict();
    if (!now || now.dataset.verdict === "wrong") return;
    rows_kept.push({ asked: asked_last(), question: now.dataset.question, verdict: now.dataset.verdict,
                     required: now.dataset.required, step: now.dataset.step, throughput: now.dataset.throughput });
    show_kept();
  }

  // Of the answer that is shown; the form may be ahead of it.
  function asked_last() {
    var out = new URLSearchParams(verdict().dataset.query), now = said();
    pasted.forEach(function (name) { if (now.has(name)) out.set(name, now.get(name)); });
    return out.toString();
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
    }).catch(function () { busy.textContent = "Tidemark does not answer: it may have ended"; });
  });
  // Links to other questions are asked in this page, so that kept rows stay.
  document.addEventListener("click", function (event) {
    var to = event.target.closest && event.target.closest("#answer a, #advice a, #near a, #kept a");
    if (!to || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    if (to.dataset.kept !== undefined) fill(new URLSearchParams(rows_kept[to.dataset.kept].asked), true);
    else fill(new URL(to.href).searchParams, false);
    ask();
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
  try { rows_kept = JSON.parse(sessionStorage.getItem("kept")) || []; } catch (none) { rows_kept = []; }
  if (rows_kept.length) show_kept();
  mark();
  var here = new URL(location.href), texts = new URLSearchParams(here.hash.slice(1));
  here.searchParams.delete("token");
  history.replaceState(null, "", "/?" + here.searchParams + here.hash);
  if (!said().has("file") && pasted.some(function (name) { return texts.has(name); })) {
    pasted.forEach(function (name) {
      if (!texts.has(name)) return;
      form.elements[name].value = texts.get(name);
      form.elements[name].closest("details").open = true;
    });
    ask();
  } else if (verdict()) {
    looking = 400;
    look(said().toString());
  }
})();
