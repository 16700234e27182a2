// Stands for a ClickHouse server: the part of its HTTP interface that the loader uses, over the real engine (npm's
// chdb). node chdb_server.js PORT DIRECTORY; prints "ready".
const fs = require('fs');
const http = require('http');
const path = require('path');
const { Session } = require('chdb');

const [port, directory] = process.argv.slice(2);
const sources = path.join(__dirname, '../../packaging/clickhouse');
const session = new Session(path.join(directory, 'db'));
const quote = (text) => "'" + text.replace(/\\/g, '\\\\').replace(/'/g, "\\'") + "'";

for (const statement of fs.readFileSync(path.join(sources, 'schema.sql'), 'utf8').replace(/^--.*$/gm, '').split(/;\s*\n/))
  if (statement.trim()) session.query(statement);

http.createServer((request, answer) => {
  const chunks = [];
  request.on('data', (c) => chunks.push(c));
  request.on('end', () => {
    const options = new URL(request.url, 'http://x').searchParams;
    const body = Buffer.concat(chunks);
    let sql = options.get('query') || body.toString();
    for (const [name, value] of options)
      if (name.startsWith('param_'))
        sql = sql.replace(new RegExp(`\\{${name.slice(6)}:(\\w+)\\}`, 'g'),
                          (_, type) => type === 'String' ? quote(value) : `${value}::${type}`);
    try {
      if (options.get('query')) {
        // input() is the body: here, a file.
        const file = path.join(directory, 'body.pb.gz');
        fs.writeFileSync(file, body);
        sql = sql.replace('input(', `file(${quote(file)}, 'ProtobufSingle', `)
                 .replace(/FORMAT ProtobufSingle\s*$/, `SETTINGS format_schema=${quote(path.join(sources, 'profile.proto') + ':Profile')}`);
      }
      const text = session.query(sql.replace(/FORMAT TSV\s*$/, ''), 'TSV');
      answer.end(text);
    } catch (e) {
      answer.writeHead(500);
      answer.end(String(e.message || e));
    }
  });
}).listen(Number(port), '127.0.0.1', () => console.log('ready'));
