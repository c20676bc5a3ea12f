// Lays a report out, and draws each figure as it comes into view.
(function () {
  'use strict';
  var data = JSON.parse(document.getElementById('data').textContent);
  var doc = Tidemark.document(data), main = document.getElementById('report'), figures = [], asked = null;
  var dark = window.matchMedia('(prefers-color-scheme: dark)');

  function theme_name() { return asked || (dark.matches ? 'dark' : 'light'); }
  function make(tag, parent, text, name) {
    var made = document.createElement(tag);
    if (text !== undefined && text !== null) made.textContent = text;
    if (name) made.className = name;
    if (parent) parent.appendChild(made);
    return made;
  }
  function save(name, href) {
    var link = make('a');
    link.href = href;
    link.download = data.title + '-' + name;
    link.click();
  }
  function save_text(name, type, text) {
    var url = URL.createObjectURL(new Blob([text], {type: type}));
    save(name, url);
    setTimeout(function () { URL.revokeObjectURL(url); }, 1000);
  }
  function button(parent, text, title, act) {
    var made = make('button', parent, text);
    made.type = 'button';
    made.title = title;
    made.addEventListener('click', act);
  }

  // -- figures ----------------------------------------------------------------------------------------------------------

  function draw(it) {
    var theme = Tidemark.themes[theme_name()];
    if (!it.chart) {
      it.chart = echarts.init(it.box, null, {renderer: 'canvas'});
      if (it.figure.range_after)
        it.chart.on('click', function (event) {
          it.range = it.figure.range_after(it.range, event.value[1]);
          draw(it);
        });
    }
    it.chart.setOption(it.figure.option(theme, it.range), {notMerge: true});
    it.drawn = theme_name();
  }
  function svg(it, width) {
    var chart = echarts.init(null, null, {renderer: 'svg', ssr: true, width: width, height: it.figure.height});
    chart.setOption(Tidemark.on_paper(it.figure.option(Tidemark.themes.light, it.range, 400)));
    var text = Tidemark.svg(chart);
    chart.dispose();
    return text;
  }
  function add_figure(parent, figure) {
    var box = make('figure', parent), head = make('div', box, null, 'head');
    make('h3', head, figure.title);
    var it = {figure: figure, chart: null, drawn: '', range: figure.range};
    var buttons = make('div', head, null, 'save');
    button(buttons, 'SVG', 'save this figure as SVG', function () { save_text(figure.id + '.svg', 'image/svg+xml', svg(it, it.box.clientWidth)); });
    button(buttons, 'PNG', 'save this figure as PNG', function () {
      draw(it);
      save(figure.id + '.png', it.chart.getDataURL({pixelRatio: 3, backgroundColor: Tidemark.themes[theme_name()].paper}));
    });
    if (figure.table)
      button(buttons, 'CSV', 'save its numbers', function () {
        save_text(figure.id + '.csv', 'text/csv', Tidemark.csv(figure.table()));
      });
    it.box = make('div', box, null, 'chart');
    it.box.id = figure.id;
    it.box.style.height = figure.height + 'px';
    it.box.setAttribute('role', 'img');
    it.box.setAttribute('aria-label', figure.title + '. ' + figure.caption);
    if (figure.caption) make('figcaption', box, figure.caption);
    figures.push(it);
  }
  function redraw() {
    document.documentElement.classList.toggle('dark', theme_name() === 'dark');
    figures.forEach(function (it) {
      if (!it.chart) return;
      if (it.drawn !== theme_name()) draw(it);
      it.chart.resize();
    });
  }

  // -- text and tables ------------------------------------------------------------------------------------------------

  function add_table(parent, table) {
    var box = make('figure', parent), head = make('div', box, null, 'head');
    make('h3', head, table.title);
    var buttons = make('div', head, null, 'save');
    button(buttons, 'CSV', 'save this table as CSV', function () { save_text(table.id + '.csv', 'text/csv', Tidemark.csv(table)); });
    button(buttons, 'Markdown', 'save this table as Markdown', function () {
      save_text(table.id + '.md', 'text/markdown', Tidemark.markdown(table));
    });
    var scroll = make('div', box, null, 'scroll'), made = make('table', scroll), row = make('tr', make('thead', made));
    var is_text = table.head.map(function (h, at) {
      return table.rows.some(function (cells) { return /^[a-z(]/i.test(String(cells[at])); });
    });
    table.head.forEach(function (text, at) { make('th', row, text, is_text[at] ? 'text' : ''); });
    var body = make('tbody', made);
    table.rows.forEach(function (cells) {
      row = make('tr', body);
      cells.forEach(function (text, at) { make('td', row, text, is_text[at] ? 'text' : ''); });
    });
  }
  function add_list(parent, title, lines) {
    if (!lines || !lines.length) return;
    if (title) make('h3', parent, title);
    var list = make('ul', parent);
    lines.forEach(function (text) { make('li', list, text); });
  }

  // A bar of what must be had, and a line at what there is.
  function add_glance(parent, its) {
    var all = 1.02 * Math.max(its.capacity, its.must_have_upper), box = make('div', parent, null, 'glance');
    make('p', box, its.name + ' ' + its.said, its.answer === false ? 'no' : its.answer ? 'yes' : 'open');
    var bar = make('div', box, null, 'bar');
    bar.setAttribute('role', 'img');
    bar.setAttribute('aria-label', its.name + ' ' + its.said);
    function piece(bytes, colour, said) {
      var made = make('i', bar);
      made.style.width = 100 * bytes / all + '%';
      made.style.background = colour;
      made.title = said;
    }
    its.parts.forEach(function (part) {
      piece(part.bytes, part.colour, part.name + ' ' + (part.bytes / 1073741824).toFixed(2) + ' GiB');
    });
    piece(its.must_have_upper - its.must_have, 'repeating-linear-gradient(45deg,#a3aab3 0 3px,transparent 3px 6px)',
          'up to ' + (its.must_have_upper / 1073741824).toFixed(2) + ' GiB at the upper ends of estimates');
    var line = make('b', bar);
    line.style.left = 100 * its.capacity / all + '%';
    line.title = 'capacity ' + (its.capacity / 1073741824).toFixed(2) + ' GiB';
  }

  var header = make('header', main);
  make('span', header, data.title);
  button(header, 'light / dark', 'switch the colours', function () {
    asked = theme_name() === 'dark' ? 'light' : 'dark';
    redraw();
  });
  var verdict = data.verdict.replace(/\n+$/, '').split('\n');
  make('h1', main, verdict[0], data.answer === null ? 'open' : data.answer ? 'yes' : 'no');
  if (verdict.length > 1) make('div', main, verdict.slice(1).join('\n'), 'reasons');
  var question = data.question ? data.question.replace(/\n+$/, '') : (doc.question || []).join('\n');
  if (question) make('div', main, question, 'question');
  (doc.glance || []).forEach(function (its) { add_glance(main, its); });
  if (doc.figures_of_merit.length) {
    var merits = make('div', main, null, 'figures-of-merit');
    doc.figures_of_merit.forEach(function (pair) {
      var box = make('div', merits);
      make('b', box, pair[0]);
      make('span', box, pair[1]);
    });
  }
  var contents = make('nav', main, null, 'contents'), sections = 0;
  contents.setAttribute('aria-label', 'Contents');
  function add_section(title) {
    var parent = make('section', main), link = make('a', contents, title);
    parent.id = 'section-' + ++sections;
    link.href = '#' + parent.id;
    make('h2', parent, title);
    return parent;
  }
  doc.sections.forEach(function (section) {
    var parent = add_section(section.title);
    if (section.text) make('p', parent, section.text, 'muted');
    var grid = null;
    (section.figures || []).forEach(function (figure, at) {
      if (section.halves && at === 1) grid = make('div', parent, null, 'grid halves');
      add_figure(grid || parent, figure);
    });
    (section.tables || []).forEach(function (table) { add_table(parent, table); });
  });
  if (doc.next && doc.next.length) add_list(add_section('What to do next'), '', doc.next);
  var last = add_section('What this rests on');
  add_list(last, 'Assumed', doc.assumptions);
  add_list(last, 'Not modelled', doc.not_modelled);
  make('h3', last, 'Where it comes from');
  make('p', last, 'Tidemark ' + data.origin.version + ', ' + data.origin.file);
  make('pre', last, data.origin.command);
  if (data.origin.text) {
    var details = make('details', last);
    make('summary', details, data.origin.file);
    make('pre', details, data.origin.text);
  }

  redraw();
  var seen = new IntersectionObserver(function (entries) {
    entries.forEach(function (entry) {
      var it = figures.filter(function (f) { return f.box === entry.target; })[0];
      if (entry.isIntersecting && !it.chart) draw(it);
    });
  }, {rootMargin: '300px'});
  figures.forEach(function (it) { seen.observe(it.box); });
  var waiting = 0;
  window.addEventListener('resize', function () {
    clearTimeout(waiting);
    waiting = setTimeout(function () { redraw(); }, 80);
  });
  dark.addEventListener('change', function () { redraw(); });
  // On paper figures are SVG: sharp, as wide as the page, and there at once.
  window.addEventListener('beforeprint', function () {
    document.documentElement.classList.remove('dark');
    figures.forEach(function (it) {
      var paper = make('div', it.box.parentNode, null, 'paper');
      it.box.parentNode.insertBefore(paper, it.box);
      paper.innerHTML = svg(it, 700);
    });
  });
  window.addEventListener('afterprint', function () {
    [].forEach.call(document.querySelectorAll('.paper'), function (paper) { paper.remove(); });
    redraw();
  });
})();
