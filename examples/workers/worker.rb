# Closes orders: ORDERS=/srv/orders delayq drain --watch --stay -P 4 order-close -- ruby worker.rb
require 'json'

dir = ENV.fetch('ORDERS')
answers = IO.new(ENV.fetch('DELAYQ_ANSWER_FD').to_i, 'w')
answers.sync = true
$stdin.each_line do |line|
  job = JSON.parse(line)
  id = job['payload']['orderId'] if job['payload'].is_a?(Hash)
  if !id.is_a?(Integer)
    answers.puts "dead #{job['ticket']} no order id"
  elsif !File.exist?("#{dir}/#{id}")
    answers.puts "dead #{job['ticket']} no order #{id}"
  else
    File.write("#{dir}/closed", "#{id}\n", mode: 'a') if File.read("#{dir}/#{id}").strip == 'open'
    answers.puts "ok #{job['ticket']}"
  end
rescue StandardError => e
  answers.puts "retry #{job['ticket']} - #{e.message.lines.first}"
end
